"""The embedded PostgreSQL: its programs found, the server started, shared and stopped."""

from __future__ import annotations


class EmbeddedError(Exception):
    """The embedded PostgreSQL cannot run; the text says why, and what to do about it."""
