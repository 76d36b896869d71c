"""Panels as they are written: types, options, the query of each."""
