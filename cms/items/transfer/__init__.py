"""Imports and exports: items as files."""
