"""Relations walked from one collection to the next, in either direction (specification, section 2.4)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from cms.schema.model import Catalogue, Collection, Relation


@dataclass(frozen=True, slots=True)
class Link:
    """One step: rows of `target` whose column `far` equals this side's column `near`."""

    relation: Relation
    target: str
    near: str
    far: str
    to_many: bool


def link_of(catalogue: Catalogue, collection: Collection, field: str) -> Link | None:
    """Return the step that a field makes, or None for one that leads nowhere."""
    many = catalogue.by_many.get((collection.name, field))
    if many and many.one_collection:
        far = many.constraint.foreign_column if many.constraint else _key(catalogue, many.one_collection)
        return Link(many, many.one_collection, field, far, to_many=False) if far else None
    one = catalogue.by_one.get((collection.name, field))
    if one and collection.primary_key:
        near = one.constraint.foreign_column if one.constraint else collection.primary_key
        return Link(one, one.many_collection, near, one.many_field, to_many=True)
    return None


def links_from(catalogue: Catalogue, collection: Collection) -> Iterator[tuple[str, Link]]:
    """Yield the fields of a collection that lead on, with their steps."""
    for name in collection.fields:
        if link := link_of(catalogue, collection, name):
            yield name, link


def _key(catalogue: Catalogue, collection: str) -> str | None:
    found = catalogue.collections.get(collection)
    return found.primary_key if found else None
