"""A PostgreSQL of our own, for who has none: found, started, shared and stopped (design, section 7)."""

from __future__ import annotations

from cms.store.embedded.error import EmbeddedError
from cms.store.embedded.lifetime import Embedded, address_of_running, start
from cms.store.embedded.places import has_data

__all__ = ["Embedded", "EmbeddedError", "address_of_running", "has_data", "start"]
