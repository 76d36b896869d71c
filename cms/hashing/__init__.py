"""Passwords: hashed by argon2, one at a time in a process."""
