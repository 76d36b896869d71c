"""Circles: a field that names a row which the same call is still to make gets its key once that row is there.

Keys that a client makes up can be named anywhere in its payload, while rows are written one statement after the
other. Where a column takes null, a new row holds null until then.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from cms.query.drafts import Batch, Draft
from cms.query.walk import links_from
from cms.schema.model import Catalogue, Collection
from cms.schema.payload import Values
from cms.store.clashes import clashes_told
from cms.store.rows import Session, Written, alike, change_rows


@dataclass(slots=True)
class Circles:
    """What is held back in one call; `coming` are the keys of rows that are not written yet, by collection."""

    catalogue: Catalogue
    coming: dict[str, set[str]] = field(default_factory=dict)
    late: dict[str, dict[Draft, Values]] = field(default_factory=dict)

    def expect(self, batches: Iterable[Batch]) -> None:
        """Learn which keys the new rows of a call bring."""
        for batch in batches:
            keys = _keys(batch.collection, [draft for draft in batch.drafts if draft.new])
            if keys:
                self.coming.setdefault(batch.collection.name, set()).update(keys)

    def hold_back(self, collection: Collection, new: Sequence[Draft], changed: Sequence[Draft]) -> None:
        """Take out of rows that are written now, the new ones first, what points to rows after them."""
        if not self.coming:
            return
        pointers = list(self._pointers(collection))
        turns = [[new[place] for place in places] for places in alike([draft.values for draft in new]).values()]
        for drafts in [*turns, changed]:
            self.coming.get(collection.name, set()).difference_update(_keys(collection, drafts))
            for draft in drafts:
                for name, target in pointers:
                    if draft.values.get(name) in self.coming[target]:
                        self._keep(collection, draft, name)

    def close(self, session: Session) -> Iterator[tuple[Draft, Written]]:
        """Write what was held back, and yield each row with what was written of it."""
        for name, rows in self.late.items():
            collection = self.catalogue.collections[name]
            for row, late in rows.items():
                row.values.update(late)
            with clashes_told(collection, list(rows)):
                written = change_rows(session, collection, [(str(row.key), late) for row, late in rows.items()])
            yield from zip(rows, written, strict=True)

    def _pointers(self, collection: Collection) -> Iterator[tuple[str, str]]:
        for name, link in links_from(self.catalogue, collection):
            if not link.to_many and link.target in self.coming:
                yield name, link.target

    def _keep(self, collection: Collection, draft: Draft, name: str) -> None:
        column = collection.fields[name].column
        if draft.new and not (column and column.nullable):
            return
        self.late.setdefault(collection.name, {}).setdefault(draft, {})[name] = draft.values.pop(name)
        if draft.new:
            draft.values[name] = None


def _keys(collection: Collection, drafts: Iterable[Draft]) -> set[str]:
    return {key for draft in drafts if (key := draft.values.get(str(collection.primary_key)))}
