"""The last stage of a write: keys, values and revisions of the rows of a sequence."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from cms.items.write.stages.mutations import RowId, RowSet
from cms.items.write.stages.resolved_rows import ResolvedRow, values_of
from cms.items.write.transaction.rows import WrittenRow
from cms.schema.model import Collection
from cms.schema.payload import RowValues
from cms.store.table_hooks import keys_of


class WrittenRows:
    """The keys, values and revisions of the rows of a sequence, as they become known while it runs.

    A row that is not written yet has the key and the values of the sequence, and no revision.
    """

    def __init__(self, sets: Sequence[RowSet]) -> None:
        self._sets = sets
        self._written: dict[int, list[WrittenRow | None]] = {}
        # Values of whole sets by their numbers, with the keys of the rows that they refer to.
        self._values: dict[int, list[RowValues]] = {}
        # Revisions, each with the row whose write encloses the one that left the revision.
        self._enclosed: list[tuple[int, RowId]] = []
        # Revisions of deleted rows, which are in no set, by their collections and keys.
        self._deleted: dict[str, dict[str, int | None]] = {}
        # Numbers that stand for the nearest revisions of rows that have none yet.
        self._reserved: dict[RowId, int] = {}

    def add(self, target: RowSet, numbers: Sequence[int], rows: Sequence[WrittenRow]) -> None:
        """Add rows of a set that have been written, in the order of their numbers."""
        written = self._written.setdefault(target.number, [None] * len(target.rows))
        for number, row in zip(numbers, rows, strict=True):
            written[number] = row
        if target.owners is None:
            return
        for number, (_, revision) in zip(numbers, rows, strict=True):
            self._note_enclosed(target, number, revision)

    def set_values(self, target: RowSet, values: list[RowValues]) -> None:
        """Set the values of all rows of a set, with the keys of the rows that they refer to."""
        self._values[target.number] = values

    def values_of(self, target: RowSet) -> Sequence[RowValues] | None:
        """Return the values of a set, or None if they are still those of the sequence."""
        return self._values.get(target.number)

    def add_values(self, row_id: RowId, values: RowValues) -> None:
        """Add values of a row that are set by a second statement, after all rows are written."""
        unwritten = values_of(self._sets[row_id.set].rows)
        set_values = self._values.setdefault(row_id.set, unwritten)
        set_values[row_id.row] = {**set_values[row_id.row], **values}

    def add_revision(self, row_id: RowId, revision: int | None) -> None:
        """Add the revision of a second statement on a row, whose own one stays its first."""
        target = self._sets[row_id.set]
        written = self._written.setdefault(target.number, [None] * len(target.rows))
        # Revisions below the row keep the first one as their parent.
        written[row_id.row] = str(self.key(row_id)), self._revision(row_id) or revision
        if target.owners is not None:
            self._note_enclosed(target, row_id.row, revision)

    def key(self, row_id: RowId) -> str | None:
        """Return the key of a row, or None for a new row that is not written yet."""
        written = self._row(row_id)
        if written:
            key, _ = written
            return key
        return self._sets[row_id.set].rows[row_id.row].key

    def keys(self, target: RowSet) -> list[str]:
        """Return the keys of all rows of a set, which may be thousands."""
        written = self._written.get(target.number, ())
        if not written:
            return keys_of(target.rows)
        keys: list[str] = []
        # Not by `key`, which would make a `RowId` for each row.
        for written_row, row in zip(written, target.rows, strict=True):
            key = row.key
            if written_row:
                key, _ = written_row
            keys.append(str(key))
        return keys

    def row(self, row_id: RowId) -> ResolvedRow:
        """Return a row with its key and its values, as far as they are known."""
        row = self._sets[row_id.set].rows[row_id.row]
        set_values = self._values.get(row_id.set)
        values = row.values if set_values is None else set_values[row_id.row]
        return row._replace(key=self.key(row_id), values=values)

    def rows(self, target: RowSet, numbers: Sequence[int] | None = None) -> Iterator[ResolvedRow]:
        """Yield rows of a set as `row` returns them; all of them without `numbers`."""
        if numbers is None:
            numbers = range(len(target.rows))
        for number in numbers:
            yield self.row(RowId(target.number, number))

    # Revisions

    def add_deleted(self, collection: Collection, rows: Iterable[WrittenRow]) -> None:
        """Add deleted rows of a collection."""
        self._deleted.setdefault(collection.name, {}).update(rows)

    def deleted(self, collection: Collection) -> Mapping[str, int | None]:
        """Return the last revisions of the deleted rows of a collection, by their keys."""
        return self._deleted.get(collection.name, {})

    def add_enclosed(self, revision: int, owner: RowId) -> None:
        """Add a revision that was left by a part of the write of `owner`."""
        self._enclosed.append((revision, owner))

    def revision_links(self) -> list[tuple[int, int]]:
        """Return enclosed revisions, each with its parent, if there is one."""
        links: list[tuple[int, int]] = []
        for revision, owner in self._enclosed:
            parent = self._nearest_revision(owner)
            if parent:
                links.append((revision, parent))
        return links

    def without_revision(self, rows: Iterable[RowId]) -> list[RowId]:
        """Return the rows that have neither a nearest revision nor a number reserved for it."""
        # Several rows may leave the lists of one owner, which needs one number.
        return [row for row in dict.fromkeys(rows) if self.enclosing_revision(row) is None]

    def reserve(self, numbers: Mapping[RowId, int]) -> None:
        """Let numbers stand for the nearest revisions of rows, which do not exist yet."""
        self._reserved.update(numbers)

    def enclosing_revision(self, row_id: RowId) -> int | None:
        """Return the nearest revision of a row, or the number that is reserved for it."""
        return self._nearest_revision(row_id) or self._reserved.get(row_id)

    def reserved_parents(self) -> dict[int, int | None]:
        """Return the reserved numbers, each with the revision that it stands for.

        None is for a number whose row, like all rows above it, has left no revision after all.
        """
        return {number: self._nearest_revision(row_id) for row_id, number in self._reserved.items()}

    def _nearest_revision(self, row_id: RowId) -> int | None:
        """Return the revision of a row, or of the nearest row above it that has left one."""
        # A row leaves no revision if it has not changed, or if its collection keeps none.
        current: RowId | None = row_id
        while current is not None:
            revision = self._revision(current)
            if revision is not None:
                return revision
            target = self._sets[current.set]
            current = self._owner(target, current.row)
        return None

    def _note_enclosed(self, target: RowSet, number: int, revision: int | None) -> None:
        owner = self._owner(target, number)
        if owner is not None and revision is not None:
            self.add_enclosed(revision, owner)

    def _owner(self, target: RowSet, number: int) -> RowId | None:
        """Return the row in whose payload a row stands."""
        owner = target.rows[number].owner
        if owner is None or target.owners is None:
            return None
        return RowId(target.owners, owner.number)

    def _row(self, row_id: RowId) -> WrittenRow | None:
        written = self._written.get(row_id.set)
        return written[row_id.row] if written else None

    def _revision(self, row_id: RowId) -> int | None:
        written = self._row(row_id)
        if written is None:
            return None
        _, revision = written
        return revision
