"""Counters of requests: windows, memory that workers share, Redis."""
