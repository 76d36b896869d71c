"""Processes and threads: those that the service starts, and what the machine has room for."""
