"""Collections and fields by name, for work on structure."""

from __future__ import annotations

from typing import NoReturn

from cms.access.structure import known_catalogue
from cms.errors import fixed_structure, forbidden, invalid_payload, not_found
from cms.schema.model import Catalogue, Collection, Field, Kind
from cms.store.context import RequestContext


def visible_structure(context: RequestContext) -> Catalogue:
    """Return the structure that the caller may know of; raises `Refused` FORBIDDEN for none."""
    return known_catalogue(context.actor.policy, context.snapshot.catalogue)


def seen(context: RequestContext, name: str) -> Collection:
    """Return a collection that the caller may know of; raises `Refused` as reads of its items do."""
    return visible_structure(context).collections.get(name) or _missing(context, "collection")


def visible_field(context: RequestContext, collection: str, name: str) -> Field:
    """Return a field that the caller may know of; raises `Refused` as `seen` does."""
    return seen(context, collection).fields.get(name) or _missing(context, "field")


def _missing(context: RequestContext, what: str) -> NoReturn:
    raise not_found(what) if context.actor.policy.is_admin else forbidden()


def require_collection(catalogue: Catalogue, name: str) -> Collection:
    """Return a collection; raises `Refused` NOT_FOUND."""
    found = catalogue.collections.get(name)
    if found is None:
        raise not_found("collection")
    return found


def require_alterable(catalogue: Catalogue, name: str) -> Collection:
    """Return a collection whose structure may change: the system's never does."""
    found = require_collection(catalogue, name)
    if found.system:
        raise fixed_structure(name)
    return found


def require_field(collection: Collection, name: str) -> Field:
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
