"""Flows as they are written: options, templates, schedules, the graph of operations."""
