"""Metrics: numbers that the processes of one machine share, and their text for Prometheus."""
