"""Collections, fields and relations by name, for changes of structure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from cms.errors import Problem, Refused, at_index, fixed_structure, invalid_payload, not_found
from cms.schema.model import Catalogue, Collection, Field, Kind, Relation
from cms.schema.records import related


class RecordPatch(NamedTuple):
    """Changes of one record: the name of its collection or field, and the body of the change."""

    name: str
    payload: Mapping[str, object]


class ManySide(NamedTuple):
    """The field of a relation that points to the other side, and its collection."""

    collection: str
    field: str


def many_side_of(relation: Relation) -> ManySide:
    return ManySide(relation.many_collection, relation.many_field)


def check_patches(
    patches: Sequence[RecordPatch], problems_of: Callable[[RecordPatch], list[Problem]]
) -> None:
    """Refuse all problems of several changes before the first change is made.

    `problems_of` returns those that can be found in one of the changes.
    """
    problems: list[Problem] = []
    for index, patch in enumerate(patches):
        problems += at_index(problems_of(patch), index, count=len(patches))
    if problems:
        raise Refused(problems)


def require_collection(catalogue: Catalogue, name: str) -> Collection:
    """Return a collection; raises `Refused` NOT_FOUND."""
    collection = catalogue.collections.get(name)
    if collection is None:
        raise not_found("collection")
    return collection


def require_alterable(catalogue: Catalogue, name: str) -> Collection:
    """Return a collection whose structure may change; raises `Refused` for the system's."""
    collection = require_collection(catalogue, name)
    # Their tables change with the migrations of the service alone.
    if collection.is_system:
        raise fixed_structure(name)
    return collection


def require_field(collection: Collection, name: str) -> Field:
    """Return a field; raises `Refused` NOT_FOUND."""
    field = collection.fields.get(name)
    if field is None:
        raise not_found("field")
    return field


def require_relation(catalogue: Catalogue, collection: str, field: str) -> Relation:
    """Return the relation of a field at either side; raises `Refused` NOT_FOUND."""
    relation = related(catalogue, collection, field)
    if relation is None:
        raise not_found("relation")
    return relation


def require_table(collection: Collection, part: str) -> None:
    """Raise `Refused` INVALID_PAYLOAD for a view or a folder: only tables can change."""
    # A view is another program's, and a folder has no columns.
    if collection.kind is not Kind.TABLE:
        reason = f'"{collection.name}" is a {collection.kind}, whose {part} cannot be changed here'
        raise invalid_payload(reason, collection=collection.name)
