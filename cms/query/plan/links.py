"""Relations walked from one collection to the next, in either direction (specification, section 2.4)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from cms.query.language.ast import AboutItem, And, AtField, Filter, OperatorTest, Or, Some
from cms.schema.model import Catalogue, Collection, Relation
from cms.schema.types import Family


@dataclass(frozen=True, slots=True)
class Link:
    """One step: rows of `target` whose column `far` equals this side's column `near`.

    `collection_field` is the column of this side that says whether the step leads to `target` at all (many-to-any);
    the key is then cast to the type of `far`.
    """

    relation: Relation
    target: str
    near: str
    far: str
    to_many: bool
    collection_field: str | None = None
    cast: str = ""


def link_of(catalogue: Catalogue, collection: Collection, field: str) -> Link | None:
    """Return the step that a field makes, or None for one that leads nowhere.

    A many-to-any field leads on with the collection it is meant for behind it: `item:headings`.
    """
    field, _, scope = field.partition(":")
    many = catalogue.by_many.get((collection.name, field))
    if scope:
        return _arm(catalogue, many, scope) if many else None
    if many and many.one_collection:
        far = (
            many.constraint.foreign_column
            if many.constraint
            else _key(catalogue, many.one_collection)
        )
        return Link(many, many.one_collection, field, far, to_many=False) if far else None
    one = catalogue.by_one.get((collection.name, field))
    if one and collection.primary_key:
        near = one.constraint.foreign_column if one.constraint else collection.primary_key
        return Link(one, one.many_collection, near, one.many_field, to_many=True)
    return None


def target_collections(catalogue: Catalogue, collection: Collection, field: str) -> tuple[str, ...]:
    """Return the collections that a many-to-any field may lead to; none for any other field."""
    many = catalogue.by_many.get((collection.name, field))
    allowed = many.one_allowed_collections if many and not many.one_collection else None
    return tuple(name for name in allowed or () if many and _arm(catalogue, many, name))


def history_item_link(catalogue: Catalogue, history: Collection, target: str) -> Link | None:
    """Return the step from a row of the history to the item that it tells of."""
    many = Relation(
        history.name,
        "item",
        None,
        one_collection_field="collection",
        one_allowed_collections=(target,),
    )
    return _arm(catalogue, many, target)


def _arm(catalogue: Catalogue, many: Relation, target: str) -> Link | None:
    far = _key(catalogue, target)
    if not far or target not in (many.one_allowed_collections or ()):
        return None
    key = catalogue.collections[target].fields[far].type
    cast = key.cast if key.family in (Family.UUID, Family.TEXT) or key.cast == "bigint" else "text"
    return Link(
        many,
        target,
        many.many_field,
        far,
        to_many=False,
        collection_field=many.one_collection_field,
        cast=cast,
    )


def links_from(catalogue: Catalogue, collection: Collection) -> Iterator[tuple[str, Link]]:
    """Yield the fields of a collection that lead on, with their steps."""
    for name in collection.fields:
        if link := link_of(catalogue, collection, name):
            yield name, link


def _key(catalogue: Catalogue, collection: str) -> str | None:
    found = catalogue.collections.get(collection)
    return found.primary_key if found else None


def has_key_test(said: Filter) -> bool:
    """Tell whether a filter at a relation speaks of the key itself, beside what it says of the item beyond."""
    match said:
        case And(items) | Or(items):
            return any(has_key_test(item) for item in items)
        case AtField() | Some() | AboutItem():
            return False
        case OperatorTest():
            return True


def has_quantifier(said: Filter) -> bool:
    """Tell whether a filter at a relation says `_some` or `_none`, alone or in groups."""
    match said:
        case And(items) | Or(items):
            return any(has_quantifier(item) for item in items)
        case Some():
            return True
        case AtField() | OperatorTest() | AboutItem():
            return False


def has_item_test(said: Filter) -> bool:
    """Tell whether a filter at a relation speaks of the item beyond it and not of the key itself."""
    match said:
        case And(items) | Or(items):
            return any(has_item_test(item) for item in items)
        case AtField() | Some():
            return True
        case OperatorTest() | AboutItem():
            return False
