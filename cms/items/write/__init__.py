"""Writes of items: parsed, resolved, authorized and planned, run."""
