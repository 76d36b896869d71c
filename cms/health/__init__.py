"""The health of the service and of all that it needs."""
