"""Deletes rows, and records the changes that ON DELETE makes to other rows.

Where no foreign key changes or deletes other rows, a deletion is one statement. Elsewhere it has
three steps, each with one statement for all rows of a foreign key:

1. Rows that will be deleted are locked and recorded, from the named rows down.
2. Rows that stay, but lose what they point to, are changed and recorded.
3. The database deletes the named rows, and by its own rules the rows below them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

from cms.database.connections import single_value
from cms.fragment import Fragment
from cms.items.write.transaction.event_runs import json_keys, queue_event_runs
from cms.items.write.transaction.executor import Executor
from cms.items.write.transaction.rows import WrittenRow, run_action_by_key, unmet_rows
from cms.query.sql import referential
from cms.query.sql.arguments import ArgumentSlots, array
from cms.query.sql.referential import KeySide, RowReference
from cms.schema.model import Catalogue, Collection, Field
from cms.schema.referential_actions import ReferentialAction, ReferentialActions, RootTable

RevisionsByRow = dict[str, int | None]
"""Row ids of deleted rows, each with the revision of its deletion, or of the nearest row above it.

A row id is the primary key as text, or the physical location (ctid) of a row without one
(cms/query/sql/referential.py).
"""


def delete_rows(
    executor: Executor,
    collection: Collection,
    keys: Sequence[str],
    *,
    enclosing_revisions: Mapping[str, int | None] | None = None,
) -> list[WrittenRow]:
    """Delete rows by their keys, and return their keys and revisions.

    `enclosing_revisions` has, by key, the revision of the write that the deletion is part of. It is
    the parent of rows that are deleted along with one that leaves no revision of its own. Raises
    `Refused`, after which nothing of the call may stay: NOT_FOUND if a row is gone, NOT_WRITTEN if
    a trigger keeps it.
    """
    if not keys:
        return []
    # Only rows that foreign keys act on take more than one statement. Where there are none, the
    # enclosing revision has nothing to be the parent of.
    if collection.name in executor.context.snapshot.catalogue.actions.root_tables_of:
        enclosing = enclosing_revisions or {}
        parents = {key: enclosing.get(key) for key in keys}
        written = _Deletion(executor, collection).delete(parents)
    else:
        written = run_action_by_key(executor, "delete", collection, keys)
    if len(written) < len(keys):
        met = {key for key, _ in written}
        raise unmet_rows(executor, collection, [key for key in keys if key not in met])
    return written


@dataclass(slots=True)
class _Deletion:
    """A deletion of rows of `root` under way; `recorded` are all deleted rows by their tables."""

    executor: Executor
    root: Collection
    recorded: dict[RootTable, RevisionsByRow] = field(default_factory=dict)

    @property
    def catalogue(self) -> Catalogue:
        return self.executor.context.snapshot.catalogue

    @property
    def actions(self) -> ReferentialActions:
        return self.catalogue.actions

    def delete(self, parents: RevisionsByRow) -> list[WrittenRow]:
        """Delete the rows with the keys of `parents`, and return their keys and own revisions.

        `parents` are the revisions of the enclosing writes. Fewer rows than keys are returned if
        some do not exist, or if a trigger keeps them.
        """
        root = self.root
        recorded: RevisionsByRow = {}
        # A collection may lie in several tables: partitions, and tables that inherit from it.
        for root_table in self.actions.root_tables_of[root.name]:
            recorded.update(self._record_roots(root_table, parents))
        has_revisions = root.accountability == "all"
        written: list[WrittenRow] = []
        for key, revision in recorded.items():
            # Without revisions of its own the statement has returned that of the enclosing write.
            written.append((key, revision if has_revisions else None))
        # The call is refused then: nothing more has to be done for it.
        if len(written) < len(parents):
            return written
        # Everything is recorded before anything is deleted: afterwards the rows could not be read.
        self._record_cascades()
        self._clear_references()
        rows = self.executor.run_cached(
            ("delete recorded", root.name),
            lambda: referential.delete_recorded(root, ArgumentSlots()),
            [array(list(parents))],
            collection=root,
        )
        # A trigger may have kept rows that were recorded as deleted.
        if single_value(rows) < len(parents):
            return []
        deleted = json_keys(root, list(recorded))
        event_data = {"payload": deleted, "keys": deleted}
        queue_event_runs(self.executor, root, verb="delete", data=event_data)
        return written

    # Rows that are deleted

    def _record_roots(self, root_table: RootTable, parents: RevisionsByRow) -> RevisionsByRow:
        """Record the named rows that lie in a table; return their keys with their revisions."""
        side = KeySide(root_table.table, self.root.key_names, self._key(root_table), self.root)
        rows = self.executor.run_cached(
            ("record roots", self.root.name, root_table),
            lambda: referential.record_deleted(RowReference(side), ArgumentSlots()),
            _arguments(parents, []),
        )
        # By row ids: from these, foreign keys lead on. The caller of the deletion knows rows by
        # keys.
        by_row_id: RevisionsByRow = {}
        by_key: RevisionsByRow = {}
        for row_id, revision, key in rows:
            by_row_id[row_id] = revision
            by_key[key] = revision
        self.recorded[root_table] = by_row_id
        return by_key

    def _record_cascades(self) -> None:
        """Record the rows that are deleted along, one foreign key further from the root each time.

        It ends, even for rows that point to each other in a cycle: no row is recorded twice.
        """
        wave = {root_table: dict(rows) for root_table, rows in self.recorded.items()}
        while wave:
            next_wave: dict[RootTable, RevisionsByRow] = {}
            for action in self._actions_on(wave, "CASCADE"):
                rows = self._record_cascade(action, wave[action.foreign_root_table])
                if rows:
                    next_wave.setdefault(action.root_table, {}).update(rows)
                    self.recorded.setdefault(action.root_table, {}).update(rows)
            wave = next_wave

    def _record_cascade(self, action: ReferentialAction, above: RevisionsByRow) -> RevisionsByRow:
        """Record the rows that one foreign key deletes with those above them, and return them."""
        root_table = action.root_table
        # Rows that no later statement needs are counted only, and need not leave the database.
        has_actions = root_table in self.actions.by_root_table
        count_only = not has_actions and self.actions.action_counts[root_table] == 1
        rows = self.executor.run_cached(
            ("record cascade", action),
            lambda: referential.record_deleted(
                self._reference(action), ArgumentSlots(), count_only=count_only
            ),
            _arguments(above, self._recorded_before(root_table)),
        )
        return {} if count_only else dict(rows)

    def _recorded_before(self, root_table: RootTable) -> list[str]:
        """Return the recorded rows of a table that a foreign key could lead to once more.

        The list is empty where that cannot be: a row has one row above it by each foreign key, so
        a single foreign key leads to it once, unless the row is one of the root.
        """
        is_root = root_table in self.actions.root_tables_of[self.root.name]
        if is_root or self.actions.action_counts[root_table] > 1:
            return list(self.recorded.get(root_table, ()))
        return []

    # Rows that stay

    def _clear_references(self) -> None:
        """Set the foreign keys of rows that stay, and point to deleted rows, as ON DELETE says.

        The database would do so as well, but leave no history of it.
        """
        for action in self._actions_on(self.recorded, "SET NULL", "SET DEFAULT"):
            above = self.recorded[action.foreign_root_table]
            # Rows that are deleted themselves need no change.
            deleted = list(self.recorded.get(action.root_table, ()))
            self.executor.run_cached(
                ("clear references", action),
                partial(self._clearing_statement, action),
                _arguments(above, deleted),
            )

    def _clearing_statement(self, action: ReferentialAction) -> Fragment:
        return referential.clear_references(
            self._reference(action),
            ArgumentSlots(),
            changed=action.changed,
            to_default=action.on_delete == "SET DEFAULT",
        )

    # Foreign keys

    def _reference(self, action: ReferentialAction) -> RowReference:
        root_table = action.root_table
        collection = self.catalogue.collections.get(root_table.collection or "")
        above_key = self._key(action.foreign_root_table)
        return RowReference(
            KeySide(action.table, action.columns, self._key(root_table), collection),
            KeySide(action.foreign_table, action.foreign_columns, above_key),
        )

    def _key(self, root_table: RootTable) -> Field | None:
        """Return the primary key of a table, None where it has none."""
        if not root_table.has_key:
            return None
        return self.catalogue.collections[str(root_table.collection)].key

    def _actions_on(
        self, root_tables: Mapping[RootTable, RevisionsByRow], *on_delete: str
    ) -> Iterator[ReferentialAction]:
        """Yield the foreign keys to these tables whose ON DELETE is one of `on_delete`.

        Their order is always the same, so that deletions of the same rows do not deadlock.
        """
        for root_table in sorted(root_tables, key=_table_name):
            for action in self.actions.by_root_table.get(root_table, ()):
                if action.on_delete in on_delete:
                    yield action


def _table_name(root_table: RootTable) -> tuple[str, str]:
    return root_table.table.schema or "", root_table.table.name


def _arguments(above: RevisionsByRow, recorded: list[str]) -> list[object]:
    """Return arguments: row ids and revisions of rows above, and row ids recorded before."""
    revisions: list[str | None] = []
    for revision in above.values():
        revisions.append(None if revision is None else str(revision))
    return [array(list(above)), array(revisions), array(recorded)]
