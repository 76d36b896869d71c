"""The printer of manual sorting: items change places, and nothing else of them changes."""

from __future__ import annotations

from cms.fragment import Fragment, fill, name, param, text
from cms.query.write import cast_of
from cms.schema.model import Collection, Field


def place(collection: Collection, sort: Field, key: str) -> Fragment:
    """Print the question where an item stands; answers nothing where there is none."""
    shape = "SELECT {2}::text FROM {0} WHERE {1} = {3}"
    return fill(shape, name(collection.name), _key(collection), name(sort.name), _given(collection, key))


def is_muddled(collection: Collection, sort: Field, low: str, high: str) -> Fragment:
    """Print the question whether items between two places, or without one, cannot be told apart by it."""
    shape = (
        "SELECT EXISTS (SELECT FROM {0} WHERE {1} IS NULL)"
        " OR (SELECT count(*) > count(DISTINCT {1}) FROM {0} WHERE {1} BETWEEN {2} AND {3})"
    )
    return fill(shape, name(collection.name), name(sort.name), param(low, "bigint"), param(high, "bigint"))


def number(collection: Collection, sort: Field) -> Fragment:
    """Print the numbering of all items from 1, in the order that they have; those without a place come last."""
    shape = (
        "UPDATE {0} AS t SET {2} = r.n FROM"
        " (SELECT {1}, row_number() OVER (ORDER BY {2}, {1}) AS n FROM {0}) AS r"
        " WHERE t.{1} = r.{1} AND t.{2} IS DISTINCT FROM r.n"
    )
    return fill(shape, name(collection.name), _key(collection), name(sort.name))


def move(collection: Collection, sort: Field, key: str, source: str, target: str) -> Fragment:
    """Print the move of an item to another place; those between close up behind it."""
    down = int(source) < int(target)
    shape = "UPDATE {0} SET {2} = CASE WHEN {1} = {3} THEN {4} ELSE {2} {5} END WHERE {2} BETWEEN {6} AND {7}"
    low, high = (source, target) if down else (target, source)
    return fill(
        shape,
        name(collection.name),
        _key(collection),
        name(sort.name),
        _given(collection, key),
        param(target, "bigint"),
        text("- 1" if down else "+ 1"),
        param(low, "bigint"),
        param(high, "bigint"),
    )


def _key(collection: Collection) -> Fragment:
    return name(str(collection.primary_key))


def _given(collection: Collection, key: str) -> Fragment:
    return param(key, cast_of(collection.fields[str(collection.primary_key)]))
