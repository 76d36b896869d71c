"""Collections and fields by name, for work on structure."""

from __future__ import annotations

from typing import NoReturn

from cms.access.structure import known_to
from cms.errors import fixed_structure, forbidden, invalid_payload, not_found
from cms.schema.model import Catalogue, Collection, Field, Kind
from cms.store.store import Scene


def structure_of(scene: Scene) -> Catalogue:
    """Return the structure that the caller may know of; raises `Refused` FORBIDDEN for none."""
    return known_to(scene.actor.policy, scene.snapshot.catalogue)


def seen(scene: Scene, name: str) -> Collection:
    """Return a collection that the caller may know of; raises `Refused` as reads of its items do."""
    return structure_of(scene).collections.get(name) or _missing(scene, "collection")


def seen_field(scene: Scene, collection: str, name: str) -> Field:
    """Return a field that the caller may know of; raises `Refused` as `seen` does."""
    return seen(scene, collection).fields.get(name) or _missing(scene, "field")


def _missing(scene: Scene, what: str) -> NoReturn:
    raise not_found(what) if scene.actor.policy.admin else forbidden()


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
        raise fixed_structure(name)
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
