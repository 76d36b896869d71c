"""Collections and fields by name, for work on structure by an administrator."""

from __future__ import annotations

from cms.errors import forbidden, not_found
from cms.schema.model import Catalogue, Collection, Field


def known(catalogue: Catalogue, name: str) -> Collection:
    """Return a collection; raises `Refused` NOT_FOUND."""
    found = catalogue.collections.get(name)
    if found is None:
        raise not_found("collection")
    return found


def alterable(catalogue: Catalogue, name: str) -> Collection:
    """Return a collection whose structure may change: the system's never does."""
    found = known(catalogue, name)
    if found.system:
        raise forbidden()
    return found


def known_field(collection: Collection, name: str) -> Field:
    """Return a field; raises `Refused` NOT_FOUND."""
    found = collection.fields.get(name)
    if found is None:
        raise not_found("field")
    return found
