"""References to rows that the same call has yet to write: they are set once those rows exist.

A client may name a key that it makes up anywhere in its payload, while rows are written one
statement after the other. Where its column takes null, a new row holds null until then.
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
    """What one call defers.

    `pending` are the keys of rows that are not written yet, by collection. `deferred` are the
    values that rows get in the end, by collection.
    """

    catalogue: Catalogue
    pending: dict[str, set[str]] = field(default_factory=dict)
    deferred: dict[str, dict[RowChange, Values]] = field(default_factory=dict)

    def add_new_keys(self, change_sets: Iterable[ChangeSet]) -> None:
        """Note the keys that the new rows of a call bring."""
        for change_set in change_sets:
            new = [change for change in change_set.changes if change.is_new]
            keys = _keys(change_set.collection, new)
            if keys:
                self.pending.setdefault(change_set.collection.name, set()).update(keys)

    def defer(
        self, collection: Collection, new: Sequence[RowChange], changed: Sequence[RowChange]
    ) -> None:
        """Take references to rows that are still pending out of the rows that are written now."""
        if not self.pending:
            return
        references = list(self._references(collection))
        # In the order of the statements: new rows by their columns, then the changed ones.
        groups = group_by_columns([change.values for change in new])
        statements = [[new[index] for index in indexes] for indexes in groups.values()]
        for changes in [*statements, changed]:
            keys = _keys(collection, changes)
            self.pending.get(collection.name, set()).difference_update(keys)
            for change in changes:
                for name, target in references:
                    if change.values.get(name) in self.pending[target]:
                        self._defer_value(collection, change, name)

    def write_deferred(self, write_context: WriteContext) -> Iterator[tuple[RowChange, WrittenRow]]:
        """Write the deferred values, and yield each row with what was written of it."""
        for name, values_by_change in self.deferred.items():
            collection = self.catalogue.collections[name]
            for change, values in values_by_change.items():
                change.values.update(values)
            rows = [(str(change.key), values) for change, values in values_by_change.items()]
            # These are the last statements of a call: all rows that they name exist now.
            with locating_conflicts(collection, list(values_by_change)):
                written = update_rows(write_context, collection, rows)
            yield from zip(values_by_change, written, strict=True)

    def _references(self, collection: Collection) -> Iterator[tuple[str, str]]:
        """Yield the fields that point to collections with pending rows."""
        for name, link in links_from(self.catalogue, collection):
            if not link.to_many and link.target in self.pending:
                yield name, link.target

    def _defer_value(self, collection: Collection, change: RowChange, name: str) -> None:
        column = collection.fields[name].column
        is_nullable = column is not None and column.is_nullable
        if change.is_new and not is_nullable:
            return  # PostgreSQL refuses the row, unless its constraint is deferred
        values = self.deferred.setdefault(collection.name, {}).setdefault(change, {})
        values[name] = change.values.pop(name)
        if change.is_new:
            change.values[name] = None


def _keys(collection: Collection, changes: Iterable[RowChange]) -> set[str]:
    """Return the keys that rows bring."""
    keys = (change.values.get(str(collection.primary_key)) for change in changes)
    return {key for key in keys if key}
