"""Circles: a field that names a row which the same call is still to make gets its key once that row is there.

Keys that a client makes up can be named anywhere in its payload, while rows are written one statement after the
other. Where a column takes null, a new row holds null until then.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from cms.items.write.changes import ChangeSet, RowChange
from cms.items.write.conflicts import locating_conflicts
from cms.items.write.rows import WriteContext, WrittenRow, group_by_columns, update_rows
from cms.query.plan.links import links_from
from cms.schema.model import Catalogue, Collection
from cms.schema.payload import Values


@dataclass(slots=True)
class DeferredKeys:
    """What is held back in one call; `pending` are the keys of rows that are not written yet, by collection."""

    catalogue: Catalogue
    pending: dict[str, set[str]] = field(default_factory=dict)
    deferred: dict[str, dict[RowChange, Values]] = field(default_factory=dict)

    def add_new_keys(self, change_sets: Iterable[ChangeSet]) -> None:
        """Learn which keys the new rows of a call bring."""
        for change_set in change_sets:
            keys = _keys(
                change_set.collection, [change for change in change_set.changes if change.is_new]
            )
            if keys:
                self.pending.setdefault(change_set.collection.name, set()).update(keys)

    def defer(
        self, collection: Collection, new: Sequence[RowChange], changed: Sequence[RowChange]
    ) -> None:
        """Take out of rows that are written now, the new ones first, what points to rows after them."""
        if not self.pending:
            return
        pointers = list(self._pointers(collection))
        turns = [
            [new[place] for place in places]
            for places in group_by_columns([change.values for change in new]).values()
        ]
        for changes in [*turns, changed]:
            self.pending.get(collection.name, set()).difference_update(_keys(collection, changes))
            for change in changes:
                for name, target in pointers:
                    if change.values.get(name) in self.pending[target]:
                        self._defer_value(collection, change, name)

    def write_deferred(self, write_context: WriteContext) -> Iterator[tuple[RowChange, WrittenRow]]:
        """Write what was held back, and yield each row with what was written of it."""
        for name, rows in self.deferred.items():
            collection = self.catalogue.collections[name]
            for row, deferred in rows.items():
                row.values.update(deferred)
            with locating_conflicts(collection, list(rows)):
                written = update_rows(
                    write_context,
                    collection,
                    [(str(row.key), deferred) for row, deferred in rows.items()],
                )
            yield from zip(rows, written, strict=True)

    def _pointers(self, collection: Collection) -> Iterator[tuple[str, str]]:
        for name, link in links_from(self.catalogue, collection):
            if not link.to_many and link.target in self.pending:
                yield name, link.target

    def _defer_value(self, collection: Collection, change: RowChange, name: str) -> None:
        column = collection.fields[name].column
        if change.is_new and not (column and column.is_nullable):
            return
        self.deferred.setdefault(collection.name, {}).setdefault(change, {})[name] = (
            change.values.pop(name)
        )
        if change.is_new:
            change.values[name] = None


def _keys(collection: Collection, changes: Iterable[RowChange]) -> set[str]:
    return {key for change in changes if (key := change.values.get(str(collection.primary_key)))}
