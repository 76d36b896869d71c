"""Records of the structure before and after a change, and their entries in the history."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from cms import jsontext
from cms.database.connections import Transaction, single_values
from cms.database.statements import statement
from cms.query.sql.arguments import array
from cms.schema.model import Collection, Field, Relation
from cms.schema.records import (
    Record,
    collection_record,
    relation_record,
    requested_field_record,
)
from cms.schema.system import PERMISSIONS, PRESETS, SHARES
from cms.store.identity import Author
from cms.text_shapes import MASK

DEPENDENTS = (PRESETS, SHARES)
"""Collections whose items belong to a collection, and are deleted with it."""


class RecordKey(NamedTuple):
    """Names a record.

    `table` is its system collection, `collection` the one that it is about. `name` is the name of
    its field or its own key; the record of a collection has none.
    """

    table: str
    collection: str
    name: str = ""

    @property
    def item(self) -> str:
        """The key of the record in the history."""
        if self.table in (PERMISSIONS, *DEPENDENTS):
            return self.name
        if not self.name:
            return self.collection
        return f"{self.collection}.{self.name}"


RecordSource = Record | Collection | Field | Relation
"""The source of a record; if it does not change, as most do not, no record is built."""

RecordSources = dict[RecordKey, RecordSource]


@dataclass(frozen=True, slots=True)
class RecordChange:
    """A record before and after a change; None where it did not exist."""

    record_key: RecordKey
    before: Record | None
    after: Record | None

    @property
    def action(self) -> str:
        if self.before is None:
            return "create"
        if self.after is None:
            return "delete"
        return "update"

    @property
    def data(self) -> Record | None:
        """The record that the revision holds; None if nothing changed."""
        if self.before == self.after:
            return None
        if self.after is None:
            return self.before
        return self.after

    @property
    def delta(self) -> Record | None:
        """The values that changed; of `meta` and `schema` those members that did."""
        if self.before is None or self.after is None:
            return self.after
        delta: Record = {}
        for name, value in self.after.items():
            former = self.before[name]
            if former == value:
                continue
            delta[name] = value
            if name in ("meta", "schema"):
                delta[name] = _changed_members(former, value)
        return delta


class ChangeEntry(NamedTuple):
    """A change to record, and the revision that is its parent, if any."""

    change: RecordChange
    parent: int | None = None


def record_change(
    record_key: RecordKey, before: RecordSources, after: RecordSources
) -> RecordChange:
    """Return the record of a key before and after a change."""
    return RecordChange(record_key, _record(before.get(record_key)), _record(after.get(record_key)))


def _record(source: RecordSource | None) -> Record | None:
    match source:
        case Collection():
            return collection_record(source)
        case Field():
            return _without_secret(source, requested_field_record(source))
        case Relation():
            return relation_record(source)
        case _:
            return source


def _without_secret(field: Field, record: Record) -> Record:
    """Return the record with its default masked: the default of a secret is a secret."""
    schema = record["schema"]
    if not field.is_secret or not isinstance(schema, dict) or schema["default_value"] is None:
        return record
    return {**record, "schema": {**schema, "default_value": MASK}}


def _changed_members(before: object, after: object) -> object:
    if not isinstance(before, dict) or not isinstance(after, dict):
        return after
    changed: Record = {}
    for name, value in after.items():
        # A name that was missing is not one that held None.
        if name not in before or before[name] != value:
            changed[name] = value
    return changed


def insert_history(
    transaction: Transaction, author: Author, entries: Sequence[ChangeEntry]
) -> list[int | None]:
    """Record changes, and return the revision of each."""
    if not entries:
        return []
    lines = list(map(_columns, entries))
    # An array for each column: one statement records all changes.
    columns = [array(list(column)) for column in zip(*lines, strict=True)]
    rows = transaction.execute(statement("record_structure_changes"), (*author, *columns))
    return single_values(rows)


def _columns(entry: ChangeEntry) -> tuple[str | None, ...]:
    """Return action, collection, item, data, delta and parent, as the statement takes them."""
    change = entry.change
    delta = None
    # A change without data has no revision, and so no delta.
    if change.data:
        delta = change.delta
    parent = None
    if entry.parent is not None:
        parent = str(entry.parent)
    return (
        change.action,
        change.record_key.table,
        change.record_key.item,
        _json(change.data),
        _json(delta),
        parent,
    )


def _json(record: Record | None) -> str | None:
    if record is None:
        return None
    return jsontext.dumps(record).decode()
