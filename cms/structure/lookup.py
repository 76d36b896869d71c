"""Collections and fields by name, for work on structure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple, NoReturn

from cms.access.visible_structure import known_catalogue
from cms.errors import fixed_structure, forbidden, invalid_payload, not_found
from cms.schema.model import Catalogue, Collection, Field, Kind
from cms.store.context import RequestContext


class RecordPatch(NamedTuple):
    """Changes of one record: the name of its collection or field, and the body of the change."""

    name: str
    payload: Mapping[str, object]


def visible_structure(context: RequestContext) -> Catalogue:
    """Return the structure that the caller may know of; raises `Refused` FORBIDDEN for none."""
    return known_catalogue(context.actor.policy, context.snapshot.catalogue)


def visible_collection(context: RequestContext, name: str) -> Collection:
    """Return a collection that the caller may know of; raises `Refused` as reads of items do."""
    collection = visible_structure(context).collections.get(name)
    return collection or _refuse_missing(context, "collection")


def visible_field(context: RequestContext, collection: str, name: str) -> Field:
    """Return a field that the caller may know of; raises `Refused` as `visible_collection` does."""
    field = visible_collection(context, collection).fields.get(name)
    return field or _refuse_missing(context, "field")


def _refuse_missing(context: RequestContext, what: str) -> NoReturn:
    # Only administrators may learn that a name does not exist: to others it might be hidden.
    raise not_found(what) if context.actor.policy.is_admin else forbidden()


def require_collection(catalogue: Catalogue, name: str) -> Collection:
    """Return a collection; raises `Refused` NOT_FOUND."""
    collection = catalogue.collections.get(name)
    if collection is None:
        raise not_found("collection")
    return collection


def require_alterable(catalogue: Catalogue, name: str) -> Collection:
    """Return a collection whose structure may change; raises `Refused` for the system's."""
    collection = require_collection(catalogue, name)
    if collection.is_system:
        raise fixed_structure(name)
    return collection


def require_field(collection: Collection, name: str) -> Field:
    """Return a field; raises `Refused` NOT_FOUND."""
    field = collection.fields.get(name)
    if field is None:
        raise not_found("field")
    return field


def require_table(collection: Collection, what: str) -> None:
    """Raise `Refused` INVALID_PAYLOAD for a view or a folder: only tables can change."""
    if collection.kind is not Kind.TABLE:
        reason = f'"{collection.name}" is a {collection.kind}, whose {what} cannot be changed here'
        raise invalid_payload(reason, collection=collection.name)
