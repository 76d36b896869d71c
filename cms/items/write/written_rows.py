"""The last stage of a write: keys and revisions of rows, by their numbers in a plan."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from cms.items.write.mutations import RowId, RowSet
from cms.items.write.parsed import RowValues
from cms.items.write.resolved_rows import ResolvedRow
from cms.items.write.rows import WrittenRow


class WrittenRows:
    """What is known of the rows of a plan once they are written, beside its sets.

    `values` are those of each set as they are written, with the keys of other rows. `enclosed` are
    revisions, each beside the row whose write they were part of. `reserved` are rows whose nearest
    revision does not exist yet, each with the number that stands for it until then.
    """

    def __init__(self, sets: Sequence[RowSet]) -> None:
        self._sets = sets
        self._written: dict[int, list[WrittenRow | None]] = {}
        self.values: dict[int, list[RowValues]] = {}
        self.enclosed: list[tuple[int, RowId]] = []
        self.reserved: dict[RowId, int] = {}

    def add(self, target: RowSet, numbers: Sequence[int], rows: Sequence[WrittenRow]) -> None:
        """Note that rows of a set have been written."""
        written = self._written.setdefault(target.number, [None] * len(target.rows))
        for number, row in zip(numbers, rows, strict=True):
            written[number] = row
        if target.owners is None:
            return
        for number, (_, revision) in zip(numbers, rows, strict=True):
            self._note_enclosed(target, number, revision)

    def add_values(self, row_id: RowId, values: RowValues) -> None:
        """Note values that a row gets after the others."""
        known = self.values.setdefault(
            row_id.set, [row.values for row in self._sets[row_id.set].rows]
        )
        known[row_id.row] = {**known[row_id.row], **values}

    def add_revision(self, row_id: RowId, revision: int | None) -> None:
        """Note the revision of values that a row got after the others."""
        target = self._sets[row_id.set]
        written = self._written.setdefault(target.number, [None] * len(target.rows))
        written[row_id.row] = str(self.key(row_id)), self._revision(row_id) or revision
        if target.owners is not None:
            self._note_enclosed(target, row_id.row, revision)

    def key(self, row_id: RowId) -> str | None:
        """Return the key of a row that is written, or was stored before."""
        written = self._row(row_id)
        return written[0] if written else self._sets[row_id.set].rows[row_id.row].key

    def keys(self, target: RowSet) -> list[str]:
        """Return the keys of all rows of a set, which may be thousands."""
        written = self._written.get(target.number, ())
        if not written:
            return [str(row.key) for row in target.rows]
        pairs = zip(written, target.rows, strict=True)
        return [str(known[0] if known else row.key) for known, row in pairs]

    def row(self, row_id: RowId) -> ResolvedRow:
        """Return a row with its key and its values, as far as they are known."""
        row = self._sets[row_id.set].rows[row_id.row]
        known = self.values.get(row_id.set)
        values = row.values if known is None else known[row_id.row]
        return row._replace(key=self.key(row_id), values=values)

    def rows(self, target: RowSet, numbers: Sequence[int] | None = None) -> Iterator[ResolvedRow]:
        """Yield rows of a set as `row` returns them; all of them without `numbers`."""
        for number in range(len(target.rows)) if numbers is None else numbers:
            yield self.row(RowId(target.number, number))

    def nearest_revision(self, row_id: RowId) -> int | None:
        """Return the revision of a row, or of the nearest one above it that has left any."""
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
            self.enclosed.append((revision, owner))

    def _owner(self, target: RowSet, number: int) -> RowId | None:
        owner = target.rows[number].owner
        if owner is None or target.owners is None:
            return None
        return RowId(target.owners, owner.number)

    def _row(self, row_id: RowId) -> WrittenRow | None:
        written = self._written.get(row_id.set)
        return written[row_id.row] if written else None

    def _revision(self, row_id: RowId) -> int | None:
        written = self._row(row_id)
        return written[1] if written else None
