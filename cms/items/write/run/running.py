"""Runs the mutations of a sequence in a transaction.

The sequence itself does not change: keys, values and revisions that become known are collected in
`WrittenRows`, from where later mutations take the keys that they refer to.
"""

from __future__ import annotations

from collections.abc import Sequence

from cms.database.error_mapping import Conflict
from cms.items.write.run.conflicts import locating_conflicts
from cms.items.write.run.contradictions import GivenValues
from cms.items.write.run.refusal_diagnosis import InquirySet, inquire_on_conflict
from cms.items.write.stages.mutations import (
    DeferredUpdate,
    Delete,
    Insert,
    MutationSequence,
    Reference,
    RowId,
    RowSet,
    Update,
)
from cms.items.write.stages.written_rows import WrittenRows
from cms.items.write.transaction.deletion import delete_rows
from cms.items.write.transaction.executor import Executor
from cms.items.write.transaction.row_indexes import at_indexes
from cms.items.write.transaction.rows import (
    advance_keys,
    column_by_key,
    insert_rows,
    link_revisions,
    replace_reserved_revisions,
    reserve_revisions,
    update_rows,
)
from cms.schema.payload import MutableRowValues, RowValues, column_values
from cms.store.table_hooks import keys_of


def run_sequence(executor: Executor, sequence: MutationSequence) -> WrittenRows:
    """Run the mutations of a sequence in their order, and return what they have written.

    Raises `Conflict` for a value that the database refuses, with its row as far as can be told and
    an inquiry about all rows of the sequence, and `Refused` for a row that is gone.
    """
    run = _SequenceRun(executor, sequence)
    try:
        run.run()
    except Conflict as conflict:
        catalogue = executor.context.snapshot.catalogue
        # Keys that were known by then are kept, although the rows are undone.
        sets: list[InquirySet] = []
        for row_set in sequence.sets:
            rows = list(run.written.rows(row_set))
            sets.append(InquirySet(row_set.collection, rows))
        inquire_on_conflict(conflict, catalogue, sets)
        raise
    run.link_revisions()
    return run.written


class _SequenceRun:
    """A sequence under way in its transaction."""

    def __init__(self, executor: Executor, sequence: MutationSequence) -> None:
        self._executor = executor
        self._sequence = sequence
        self.written = WrittenRows(sequence.sets)

    def run(self) -> None:
        """Run all mutations."""
        collections = self._executor.context.snapshot.catalogue.collections
        # Before all inserts: one of them could draw a key that a later one brings.
        for name, keys in self._sequence.new_keys.items():
            advance_keys(self._executor, collections[name], list(keys))
        for mutation in self._sequence.mutations:
            self._run(mutation)
        for deferred in self._sequence.deferred:
            self._set_deferred(deferred)

    def link_revisions(self) -> None:
        """Set the parent of each revision: the revision of the enclosing write.

        It is done last, because a to-one object is written before the row that encloses it.
        """
        link_revisions(self._executor, self.written.revision_links())
        replace_reserved_revisions(self._executor, self.written.reserved_parents())

    def _run(self, mutation: Insert | Update | Delete) -> None:
        if isinstance(mutation, Insert):
            self._insert(mutation)
        elif isinstance(mutation, Update):
            self._update(mutation)
        else:
            self._delete(mutation)

    # Rows

    def _insert(self, insert: Insert) -> None:
        target = insert.target
        values = self._values(target, insert.numbers)
        with locating_conflicts(target.collection, self.written.rows(target, insert.numbers)):
            rows = insert_rows(self._executor, target.collection, values)
        self.written.add(target, insert.numbers, rows)

    def _update(self, update: Update) -> None:
        target = update.target
        values = self._values(target, update.numbers)
        keys = keys_of(at_indexes(target.rows, update.numbers))
        with locating_conflicts(target.collection, self.written.rows(target, update.numbers)):
            rows = update_rows(self._executor, target.collection, keys, values)
        self.written.add(target, update.numbers, rows)

    def _set_deferred(self, deferred: DeferredUpdate) -> None:
        written = self.written
        keys = [str(written.key(row_id)) for row_id in deferred.values]
        rows = list(deferred.values.values())
        # Before the statement: a refused value is looked for in the rows as they are written.
        for row_id, values in deferred.values.items():
            written.add_values(row_id, values)
        # These are the last statements of a call: all rows that they name exist now.
        with locating_conflicts(deferred.collection, map(written.row, deferred.values)):
            updated = update_rows(self._executor, deferred.collection, keys, rows)
        for row_id, (_, revision) in zip(deferred.values, updated, strict=True):
            written.add_revision(row_id, revision)

    def _values(self, target: RowSet, numbers: Sequence[int]) -> Sequence[RowValues]:
        """Return the values of rows, with the keys of the rows that they refer to."""
        values = self.written.values_of(target)
        if values is None:
            values = self._with_references(target)
            self.written.set_values(target, values)
        # All rows of a set, which may be thousands, need no list of their own.
        if len(numbers) == len(values):
            return values
        return at_indexes(values, numbers)

    def _with_references(self, target: RowSet) -> list[RowValues]:
        filled: list[RowValues] = [row.values for row in target.rows]
        # Values of the sequence must not change, and only some rows may have a reference.
        copies: dict[int, MutableRowValues] = {}
        given = GivenValues(target.collection)
        for reference in target.references:
            column = self._column(reference)
            for number, target_number in reference.pairs:
                if number not in copies:
                    copies[number] = dict(filled[number])
                values = column_values(reference.field, column[target_number])
                given.add(number, target.rows[number], reference.field, values)
                copies[number] |= values
        for number, values in copies.items():
            filled[number] = values
        return filled

    def _column(self, reference: Reference) -> dict[int, str | None]:
        """Return what written rows hold in the column that others refer to, by their numbers."""
        collection = self._sequence.sets[reference.target].collection
        keys: dict[int, str | None] = {}
        for _, number in reference.pairs:
            # Several rows may refer to the same one.
            if number not in keys:
                keys[number] = self.written.key(RowId(reference.target, number))
        if reference.column == collection.key or not keys:
            return keys
        # Another unique column may be filled by the database, and is read from the written rows.
        key_texts = [str(key) for key in keys.values()]
        stored = column_by_key(self._executor, collection, reference.column, key_texts)
        return {number: stored[str(key)] for number, key in keys.items()}

    # Deletes

    def _delete(self, delete: Delete) -> None:
        rows = delete_rows(
            self._executor,
            delete.collection,
            delete.keys,
            enclosing_revisions=self._enclosing_revisions(delete),
        )
        self.written.add_deleted(delete.collection, rows)
        for key, revision in rows:
            if revision is not None and key in delete.owners:
                self.written.add_enclosed(revision, delete.owners[key])

    def _enclosing_revisions(self, delete: Delete) -> dict[str, int | None]:
        """Return the revisions that enclose the deletions of rows, by the rows' keys.

        They become the parents of rows that the database deletes along with these. Where the
        enclosing revision does not exist yet, a reserved number stands for it (`link_revisions`
        replaces it).
        """
        # Rows that leave revisions are the parents themselves, and are linked afterwards.
        if delete.collection.accountability == "all":
            return {}
        written = self.written
        waiting = written.without_revision(delete.owners.values())
        numbers = reserve_revisions(self._executor, len(waiting))
        written.reserve(dict(zip(waiting, numbers, strict=True)))
        return {key: written.enclosing_revision(owner) for key, owner in delete.owners.items()}
