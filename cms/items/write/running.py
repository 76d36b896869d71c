"""Runs the mutations of a plan; what becomes known by it stands beside the plan."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from cms.database.error_mapping import Conflict
from cms.items.write.conflicts import locating_conflicts
from cms.items.write.deletion import delete_rows
from cms.items.write.executor import Executor
from cms.items.write.inquiry import AskedSet, PayloadInquiry
from cms.items.write.mutations import (
    DeferredUpdate,
    Delete,
    Insert,
    MutationPlan,
    Reference,
    RowId,
    RowSet,
    Update,
)
from cms.items.write.parsed import RowValues
from cms.items.write.rows import (
    advance_keys,
    column_by_key,
    insert_rows,
    link_revisions,
    replace_reserved_revisions,
    reserve_revisions,
    update_rows,
)
from cms.items.write.written_rows import WrittenRows
from cms.schema.payload import Values


def run_plan(executor: Executor, plan: MutationPlan) -> WrittenRows:
    """Run the mutations of a plan in their order.

    Raises `Refused` with the row that the database refuses, and `Conflict` with an inquiry about
    all rows of the plan.
    """
    run = _PlanRun(executor, plan)
    try:
        run.run()
    except Conflict as conflict:
        catalogue = executor.context.snapshot.catalogue
        sets = [
            AskedSet(row_set.collection, list(run.written.rows(row_set))) for row_set in plan.sets
        ]
        conflict.inquiry = PayloadInquiry(catalogue, sets, is_permitted=True)
        raise
    run.link_revisions()
    return run.written


class _PlanRun:
    """A plan under way in its transaction."""

    def __init__(self, executor: Executor, plan: MutationPlan) -> None:
        self._executor = executor
        self._plan = plan
        self.written = WrittenRows(plan.sets)

    def run(self) -> None:
        """Run all mutations."""
        collections = self._executor.context.snapshot.catalogue.collections
        for name, keys in self._plan.new_keys.items():
            advance_keys(self._executor, collections[name], list(keys))
        for mutation in self._plan.mutations:
            self._run(mutation)
        for deferred in self._plan.deferred:
            self._set_deferred(deferred)

    def link_revisions(self) -> None:
        """Give each revision the one of the enclosing write; that of a to-one object is older."""
        written = self.written
        links: list[tuple[int, int]] = []
        for revision, owner in written.enclosed:
            parent = written.nearest_revision(owner)
            if parent:
                links.append((revision, parent))
        link_revisions(self._executor, links)
        true_parents = {
            number: written.nearest_revision(owner) for owner, number in written.reserved.items()
        }
        replace_reserved_revisions(self._executor, true_parents)

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
        keys = [str(target.rows[number].key) for number in update.numbers]
        with locating_conflicts(target.collection, self.written.rows(target, update.numbers)):
            rows = update_rows(self._executor, target.collection, keys, values)
        self.written.add(target, update.numbers, rows)

    def _set_deferred(self, deferred: DeferredUpdate) -> None:
        written = self.written
        keys = [str(written.key(row_id)) for row_id in deferred.values]
        rows = list(deferred.values.values())
        for row_id, values in deferred.values.items():
            written.add_values(row_id, values)
        # These are the last statements of a call: all rows that they name exist now.
        with locating_conflicts(deferred.collection, map(written.row, deferred.values)):
            updated = update_rows(self._executor, deferred.collection, keys, rows)
        for row_id, (_, revision) in zip(deferred.values, updated, strict=True):
            written.add_revision(row_id, revision)

    def _values(self, target: RowSet, numbers: Sequence[int]) -> Sequence[RowValues]:
        """Return the values of rows, with what they take from rows that are written."""
        if target.number not in self.written.values:
            self.written.values[target.number] = self._with_references(target)
        values = self.written.values[target.number]
        if len(numbers) == len(values):
            return values
        return [values[number] for number in numbers]

    def _with_references(self, target: RowSet) -> list[RowValues]:
        filled: list[RowValues] = [row.values for row in target.rows]
        copies: dict[int, Values] = {}
        for reference in target.references:
            column = self._column(reference)
            for number, target_number in reference.pairs:
                if number not in copies:
                    copies[number] = dict(filled[number])
                copies[number][reference.field] = column[target_number]
        for number, values in copies.items():
            filled[number] = values
        return filled

    def _column(self, reference: Reference) -> dict[int, str | None]:
        """Return what written rows hold in the column that others point to."""
        collection = self._plan.sets[reference.target].collection
        numbers = dict.fromkeys(target_number for _, target_number in reference.pairs)
        keys = {number: self.written.key(RowId(reference.target, number)) for number in numbers}
        if reference.column == collection.primary_key or not keys:
            return keys
        stored = column_by_key(
            self._executor, collection, reference.column, [str(key) for key in keys.values()]
        )
        return {number: stored[str(key)] for number, key in keys.items()}

    # Deletes

    def _delete(self, delete: Delete) -> None:
        rows = delete_rows(
            self._executor,
            delete.collection,
            delete.keys,
            enclosing_revisions=self._enclosing_revisions(delete),
        )
        for key, revision in rows:
            if revision is not None and key in delete.owners:
                self.written.enclosed.append((revision, delete.owners[key]))

    def _enclosing_revisions(self, delete: Delete) -> dict[str, int | None]:
        """Return the revisions of the writes by which rows leave a list, by the rows' keys.

        They are needed only where deleted rows leave no revisions of their own, which would be
        linked later, but rows that are deleted with them do. Reserved numbers stand for revisions
        to come.
        """
        if delete.collection.accountability == "all":
            return {}
        written = self.written
        revisions = {key: written.nearest_revision(owner) for key, owner in delete.owners.items()}
        waiting = [owner for key, owner in delete.owners.items() if revisions[key] is None]
        self._reserve(owner for owner in waiting if owner not in written.reserved)
        return {
            key: revisions[key] or written.reserved[owner] for key, owner in delete.owners.items()
        }

    def _reserve(self, owners: Iterable[RowId]) -> None:
        """Reserve a number for the revision that each of these rows will leave."""
        waiting = list(dict.fromkeys(owners))
        numbers = reserve_revisions(self._executor, len(waiting))
        self.written.reserved.update(zip(waiting, numbers, strict=True))
