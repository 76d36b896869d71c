"""Reads of items: one statement a request, its limits, its explanation."""
