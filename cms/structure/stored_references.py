"""Stored values that name fields, and so change when a field is renamed or dropped."""

from __future__ import annotations

from dataclasses import dataclass

from cms import jsontext
from cms.dashboards.definition.panel_references import apply_to_panel
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
from cms.schema.system import COLLECTIONS, FIELDS, PANELS, PERMISSIONS, PRESETS


@dataclass(frozen=True, slots=True)
class StoredReference:
    """A column of a system table whose value names fields of a collection."""

    table: str
    key: str
    column: str
    apply_change: FollowChange
    cast: str = "json"
    collection: str | None = "collection"
    """The column with the collection; None where the value itself names it."""


STORED_REFERENCES = (
    StoredReference(PERMISSIONS, "id", "permissions", apply_to_filter),
    StoredReference(PERMISSIONS, "id", "validation", apply_to_filter),
    StoredReference(PERMISSIONS, "id", "presets", apply_to_presets),
    StoredReference(FIELDS, "id", "validation", apply_to_filter),
    StoredReference(FIELDS, "id", "conditions", apply_to_conditions),
    StoredReference(PRESETS, "id", "filter", apply_to_filter),
    StoredReference(COLLECTIONS, "collection", "item_duplication_fields", apply_to_paths),
    StoredReference(COLLECTIONS, "collection", "display_template", apply_to_template, cast="text"),
    StoredReference(COLLECTIONS, "collection", "preview_url", apply_to_template, cast="text"),
    StoredReference(PANELS, "id", "options", apply_to_panel, collection=None),
)


def apply_change(transaction: Transaction, change: FieldChange) -> None:
    """Change every stored value that names the field."""
    # Those of all collections: rules may name the field at the end of a path.
    for reference in STORED_REFERENCES:
        _apply_to(transaction, reference, change)


def _apply_to(transaction: Transaction, reference: StoredReference, change: FieldChange) -> None:
    table = name(reference.table)
    key = name(reference.key)
    column = name(reference.column)
    is_json = reference.cast == "json"
    # Compared here and not in SQL: only its parser knows which names a rule or template uses.
    owner = name(reference.collection) if reference.collection else text("NULL")
    select = "SELECT {1}::text, {3}, {2}::text FROM {0} WHERE {2} IS NOT NULL"
    for row_key, collection, stored in transaction.run(fill(select, table, key, column, owner)):
        before = stored
        if is_json:
            before = jsontext.loads_stored(stored)
        # `collection` is the collection of the row: the names in the value begin there.
        after = reference.apply_change(before, collection, change)
        if after == before:
            continue
        if is_json:
            after = jsontext.dumps(after).decode()
        # Keys are numbers, UUIDs and names, and so are compared as text.
        update = "UPDATE {0} SET {2} = {3} WHERE {1}::text = {4}"
        value = param(after, reference.cast)
        transaction.run(fill(update, table, key, column, value, param(row_key, "text")))
