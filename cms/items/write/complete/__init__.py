"""Parsed rows become resolved ones: automatic values, presets, and checks of the values."""
