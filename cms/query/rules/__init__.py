"""Rules that are tried in Python, on payloads."""
