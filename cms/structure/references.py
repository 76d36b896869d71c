"""Stored values that name fields, read, changed and written back when a field is renamed or dropped."""

from __future__ import annotations

from dataclasses import dataclass

from cms import jsontext
from cms.database.connections import Transaction
from cms.fragment import fill, name, param, text
from cms.schema.references import (
    FieldChange,
    FollowChange,
    apply_to_conditions,
    apply_to_filter,
    apply_to_paths,
    apply_to_presets,
    apply_to_template,
)


@dataclass(frozen=True, slots=True)
class StoredReference:
    """A column of a system table whose value speaks of the collection in the same row."""

    table: str
    key: str
    column: str
    apply_change: FollowChange
    cast: str = "json"


STORED_REFERENCES = (
    StoredReference("system_permissions", "id", "permissions", apply_to_filter),
    StoredReference("system_permissions", "id", "validation", apply_to_filter),
    StoredReference("system_permissions", "id", "presets", apply_to_presets),
    StoredReference("system_fields", "id", "validation", apply_to_filter),
    StoredReference("system_fields", "id", "conditions", apply_to_conditions),
    StoredReference("system_presets", "id", "filter", apply_to_filter),
    StoredReference("system_collections", "collection", "item_duplication_fields", apply_to_paths),
    StoredReference(
        "system_collections", "collection", "display_template", apply_to_template, cast="text"
    ),
)


def apply_change(transaction: Transaction, change: FieldChange) -> None:
    """Let every stored value follow; a rule about another collection may reach the field through relations."""
    for place in STORED_REFERENCES:
        _apply_to(transaction, place, change)


def _apply_to(transaction: Transaction, place: StoredReference, change: FieldChange) -> None:
    table, key, column = name(place.table), name(place.key), name(place.column)
    rows = transaction.run(
        fill(
            "SELECT {1}::text, collection, {2}::text FROM {0} WHERE {2} IS NOT NULL",
            table,
            key,
            column,
        )
    )
    for row, collection, loads_stored in rows:
        before = jsontext.loads_stored(loads_stored) if place.cast == "json" else loads_stored
        after = place.apply_change(before, collection, change)
        if after != before:
            written = jsontext.dumps(after).decode() if place.cast == "json" else after
            update = "UPDATE {0} SET {2} = {3}{4} WHERE {1}::text = {5}"
            cast = text(f"::{place.cast}")
            transaction.run(
                fill(update, table, key, column, param(written), cast, param(row, "text"))
            )
