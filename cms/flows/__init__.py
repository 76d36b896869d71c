"""Flows: made ready to run, and run."""
