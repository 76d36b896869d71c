"""Logins, sessions and second factors; accounts by invitation, registration and reset."""
