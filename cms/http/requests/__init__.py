"""Requests and their parts: state, bodies, forms, cookies, paths, origins."""
