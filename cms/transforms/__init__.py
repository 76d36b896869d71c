"""Transforms of images, as requests and presets ask for them."""
