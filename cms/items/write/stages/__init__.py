"""The frozen values of a write, one kind for each of its stages."""
