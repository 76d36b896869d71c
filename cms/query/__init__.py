"""Queries, from their text to SQL: language, plan, printers, and rules tried in Python."""
