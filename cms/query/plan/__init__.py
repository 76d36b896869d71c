"""Guarded queries planned: operators fit the types, operands become parameters."""
