"""Which versions of PostgreSQL the service works with."""

from __future__ import annotations

OLDEST_SERVER = 14
"""The oldest major version of PostgreSQL that has all that the migrations use."""
