"""Stored values that name fields, and so change when a field is renamed or dropped."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from cms import jsontext
from cms.dashboards.definition.panel_types import apply_to_panel
from cms.database.connections import Transaction, single_values
from cms.database.statements import statement
from cms.flows.definition.flow import flow_definition
from cms.flows.definition.flow_references import changed_flow_options
from cms.fragment import fill, name, param, text
from cms.schema.option_references import apply_to_field_conditions, apply_to_field_options
from cms.schema.query_references import apply_to_layout_options, apply_to_layout_query
from cms.schema.references import (
    FieldChange,
    FollowChange,
    apply_to_filter,
    apply_to_paths,
    apply_to_presets,
    apply_to_template,
)
from cms.schema.system import COLLECTIONS, FIELDS, PANELS, PERMISSIONS, PRESETS

FollowFieldChange = Callable[[object, str | None, str | None, FieldChange], object]
"""Returns a value that describes a field as it is after a change."""


@dataclass(frozen=True, slots=True)
class StoredReference:
    """A column of a system table whose value names fields of a collection."""

    table: str
    key: str
    column: str
    apply_change: FollowChange | None = None
    cast: str = "json"
    collection: str | None = "collection"
    """The column with the collection; None where the value itself names it."""
    field: str | None = None
    """The column with the field that the value describes, where its relation counts."""
    apply_to_field: FollowFieldChange | None = None

    def applied(
        self, value: object, collection: str | None, field: str | None, change: FieldChange
    ) -> object:
        """Return a value as it is after a change; `field` is the one that the value describes."""
        if self.apply_to_field is not None:
            return self.apply_to_field(value, collection, field, change)
        assert self.apply_change
        return self.apply_change(value, collection, change)


STORED_REFERENCES = (
    StoredReference(PERMISSIONS, "id", "permissions", apply_to_filter),
    StoredReference(PERMISSIONS, "id", "validation", apply_to_filter),
    StoredReference(PERMISSIONS, "id", "presets", apply_to_presets),
    StoredReference(FIELDS, "id", "validation", apply_to_filter),
    *(
        StoredReference(FIELDS, "id", column, field="field", apply_to_field=apply_to_field)
        for column, apply_to_field in (
            ("conditions", apply_to_field_conditions),
            ("options", apply_to_field_options),
            ("display_options", apply_to_field_options),
        )
    ),
    StoredReference(PRESETS, "id", "filter", apply_to_filter),
    StoredReference(PRESETS, "id", "layout_query", apply_to_layout_query),
    StoredReference(PRESETS, "id", "layout_options", apply_to_layout_options),
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
    _apply_to_flows(transaction, change)


def _apply_to_flows(transaction: Transaction, change: FieldChange) -> None:
    """Change the options of flows and operations, whose names depend on one another."""
    flows = single_values(transaction.execute(statement("find_flow_ids")))
    for row in transaction.execute(statement("find_flow_definitions"), (flows,)):
        for table, key, options in changed_flow_options(flow_definition(row), change):
            update = "UPDATE {0} SET options = {1} WHERE id::text = {2}"
            value = param(jsontext.dumps(options).decode(), "json")
            transaction.run(fill(update, name(table), value, param(key, "text")))


def _apply_to(transaction: Transaction, reference: StoredReference, change: FieldChange) -> None:
    table = name(reference.table)
    key = name(reference.key)
    column = name(reference.column)
    is_json = reference.cast == "json"
    # Compared here and not in SQL: only its parser knows which names a rule or template uses.
    owner = name(reference.collection) if reference.collection else text("NULL")
    field = name(reference.field) if reference.field else text("NULL")
    select = "SELECT {1}::text, {3}, {4}, {2}::text FROM {0} WHERE {2} IS NOT NULL"
    rows = transaction.run(fill(select, table, key, column, owner, field))
    for row_key, collection, described_field, stored in rows:
        before = stored
        if is_json:
            before = jsontext.loads_stored(stored)
        # `collection` is the collection of the row: the names in the value begin there.
        after = reference.applied(before, collection, described_field, change)
        if after == before:
            continue
        if is_json:
            after = jsontext.dumps(after).decode()
        # Keys are numbers, UUIDs and names, and so are compared as text.
        update = "UPDATE {0} SET {2} = {3} WHERE {1}::text = {4}"
        value = param(after, reference.cast)
        transaction.run(fill(update, table, key, column, value, param(row_key, "text")))
