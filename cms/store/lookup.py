"""Collections and fields by name, for work on structure by an administrator."""

from __future__ import annotations

from cms.errors import forbidden, invalid_payload, not_found
from cms.schema.model import Catalogue, Collection, Field, Kind


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


def require_table(collection: Collection, what: str) -> None:
    """Raise `Refused` INVALID_PAYLOAD for a view or a folder: only a table's own columns and keys can change."""
    if collection.kind is not Kind.TABLE:
        reason = f'"{collection.name}" is a {collection.kind}, whose {what} cannot be changed here'
        raise invalid_payload(reason, collection=collection.name)
