"""Requests that the service sends to other servers, for its users."""
