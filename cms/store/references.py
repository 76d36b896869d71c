"""Stored values that name fields, read, changed and written back when a field is renamed or dropped."""

from __future__ import annotations

from dataclasses import dataclass

from cms import jsontext
from cms.fragment import fill, name, param, text
from cms.schema.references import (
    Change,
    Follow,
    follow_in_conditions,
    follow_in_filter,
    follow_in_paths,
    follow_in_presets,
    follow_in_template,
)
from cms.store.database import Transaction


@dataclass(frozen=True, slots=True)
class Place:
    """A column of a system table whose value speaks of the collection in the same row."""

    table: str
    key: str
    column: str
    follow: Follow
    cast: str = "json"


PLACES = (
    Place("system_permissions", "id", "permissions", follow_in_filter),
    Place("system_permissions", "id", "validation", follow_in_filter),
    Place("system_permissions", "id", "presets", follow_in_presets),
    Place("system_fields", "id", "validation", follow_in_filter),
    Place("system_fields", "id", "conditions", follow_in_conditions),
    Place("system_presets", "id", "filter", follow_in_filter),
    Place("system_collections", "collection", "item_duplication_fields", follow_in_paths),
    Place("system_collections", "collection", "display_template", follow_in_template, cast="text"),
)


def follow(transaction: Transaction, change: Change) -> None:
    """Let every stored value follow; a rule about another collection may reach the field through relations."""
    for place in PLACES:
        _follow_at(transaction, place, change)


def _follow_at(transaction: Transaction, place: Place, change: Change) -> None:
    table, key, column = name(place.table), name(place.key), name(place.column)
    rows = transaction.run(
        fill("SELECT {1}::text, collection, {2}::text FROM {0} WHERE {2} IS NOT NULL", table, key, column)
    )
    for row, collection, stored in rows:
        before = jsontext.stored(stored) if place.cast == "json" else stored
        after = place.follow(before, collection, change)
        if after != before:
            written = jsontext.dumps(after).decode() if place.cast == "json" else after
            update = "UPDATE {0} SET {2} = {3}{4} WHERE {1}::text = {5}"
            cast = text(f"::{place.cast}")
            transaction.run(fill(update, table, key, column, param(written), cast, param(row, "text")))
