"""The benchmark: the service beside its floor, in one run on one machine (`python -m bench`)."""
