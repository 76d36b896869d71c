"""References to rows that the same call writes later: they are set once those rows exist.

A client that chooses the keys of new items may use them anywhere in its payload, while rows are
written one statement after the other. A reference whose row does not exist yet is taken out of its
row, which holds null in the meantime, and set by an update at the end of the call.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from cms.items.write.stages.mutations import DeferredUpdate, RowId
from cms.items.write.stages.resolved_rows import ResolvedRow, values_of
from cms.items.write.transaction.row_indexes import at_indexes
from cms.items.write.transaction.rows import group_by_columns
from cms.query.plan.links import links_from
from cms.schema.key_texts import key_text
from cms.schema.model import Catalogue, Collection, Field
from cms.schema.payload import MutableRowValues


class _ReferenceField(NamedTuple):
    """A field that points to rows of the collection `target`."""

    field: Field
    target: str


class DeferredKeys:
    """Collects the references that one call defers, while its statements are planned in order.

    `new_keys` are the keys that its new rows have before they are written, by collection.
    """

    def __init__(self, catalogue: Catalogue, new_keys: Mapping[str, frozenset[str]]) -> None:
        self._catalogue = catalogue
        # The keys of new rows, by collection, that no statement planned so far has written.
        self._pending = {name: set(keys) for name, keys in new_keys.items()}
        self._values: dict[str, dict[RowId, MutableRowValues]] = {}

    def defer(
        self, set_number: int, collection: Collection, rows: Sequence[ResolvedRow]
    ) -> Sequence[ResolvedRow]:
        """Return rows without their references to rows that are written after them.

        It must be called for the sets in the order in which their mutations run.
        """
        if not self._pending:
            return rows
        references = list(self._references(collection))
        if not references:
            # Nothing is deferred here, but rows of later sets may refer to these.
            self._note_written(collection, rows)
            return rows
        deferred_rows = list(rows)
        for numbers in _statements(rows):
            # Rows of one statement may refer to each other: PostgreSQL checks keys at its end.
            self._note_written(collection, at_indexes(rows, numbers))
            for number in numbers:
                names = self._deferred_names(rows[number], references)
                if names:
                    row_id = RowId(set_number, number)
                    deferred_rows[number] = self._without(collection, row_id, rows[number], names)
        return deferred_rows

    def updates(self) -> tuple[DeferredUpdate, ...]:
        """Return the updates that set the deferred references, after all other statements."""
        collections = self._catalogue.collections
        updates: list[DeferredUpdate] = []
        for name, values in self._values.items():
            updates.append(DeferredUpdate(collections[name], values))
        return tuple(updates)

    def _note_written(self, collection: Collection, rows: Iterable[ResolvedRow]) -> None:
        pending = self._pending.get(collection.name)
        if pending:
            pending.difference_update(new_keys_of(collection, rows))

    def _references(self, collection: Collection) -> Iterator[_ReferenceField]:
        """Yield the fields that point to collections with pending rows."""
        for _, link in links_from(self._catalogue, collection):
            if not link.to_many and link.target in self._pending:
                yield _ReferenceField(link.near, link.target)

    def _deferred_names(self, row: ResolvedRow, references: Sequence[_ReferenceField]) -> list[str]:
        """Return the columns of a row whose values are keys of pending rows."""
        names: list[str] = []
        for field, target in references:
            columns = field.key_fields
            values = [row.values.get(column.name) for column in columns]
            key = key_text(values) if field.parts else values[0]
            if key not in self._pending[target]:
                continue
            nullable = [part.name for part in columns if part.column and part.column.is_nullable]
            # A new row cannot do without a value in a column that takes no null. PostgreSQL refuses
            # the reference then, unless the constraint is deferred.
            if not row.is_new:
                names += [column.name for column in columns]
            else:
                names += nullable
        return names

    def _without(
        self, collection: Collection, row_id: RowId, row: ResolvedRow, names: Sequence[str]
    ) -> ResolvedRow:
        """Return a row without some of its references, and keep their values for `updates`."""
        values = dict(row.values)
        deferred: MutableRowValues = {}
        for name in dict.fromkeys(names):
            deferred[name] = values.pop(name)
            if row.is_new:
                # A change leaves the stored value until the update; a new row has none to leave.
                values[name] = None
        self._values.setdefault(collection.name, {})[row_id] = deferred
        return row._replace(values=values)


def new_keys_of(collection: Collection, rows: Iterable[ResolvedRow]) -> frozenset[str]:
    """Return the keys that new rows have among their values."""
    keys: set[str] = set()
    for row in rows:
        if not row.is_new:
            continue
        key = collection.key_of(row.values)
        if key is not None:
            keys.add(key)
    return frozenset(keys)


def _statements(rows: Sequence[ResolvedRow]) -> Iterator[list[int]]:
    """Yield the numbers of the rows of each statement, in the order in which they run.

    New rows are inserted by `insert_rows`, one statement for equal columns. Changed rows follow.
    """
    new: list[int] = []
    changed: list[int] = []
    for number, row in enumerate(rows):
        numbers = new if row.is_new else changed
        numbers.append(number)
    groups = group_by_columns(values_of(at_indexes(rows, new)))
    for indexes in groups.values():
        yield at_indexes(new, indexes)
    yield changed
