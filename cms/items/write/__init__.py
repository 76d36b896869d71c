"""Writes of items: parsed, completed and resolved, authorized, planned and run."""
