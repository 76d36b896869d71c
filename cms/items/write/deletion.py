"""Rows deleted, and what the database does to others because of it (ON DELETE), all of it in the history.

Where no foreign key changes or deletes other rows, a deletion is one statement. Elsewhere the rows that go are locked
and written down first, from those above to those below them and table by table; then rows that lose what they point to
are changed; then the database deletes, by its own rules. A statement is for all rows of a table, however many.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from cms.errors import not_found
from cms.fragment import Fragment
from cms.items.write.rows import WriteContext, WrittenRow, run_action, run_cached
from cms.query.sql import referential
from cms.query.sql.arguments import ArgumentSlots
from cms.query.sql.arrays import array
from cms.query.sql.referential import KeySide, RowReference
from cms.schema.model import Catalogue, Collection, Field
from cms.schema.payload import Values
from cms.schema.referential_actions import ReferentialAction, ReferentialActions, RootTable

RevisionsByRow = dict[str, int | None]
"""Marks of rows that go, each with the revision of its deletion, or of the nearest one above that has any."""


def delete_rows(
    write_context: WriteContext,
    collection: Collection,
    keys: Sequence[str],
    *,
    enclosing_revisions: Mapping[str, int | None] | None = None,
) -> list[WrittenRow]:
    """Delete rows by their keys; one unknown key refuses them all.

    `enclosing_revisions` holds, by key, the revision of the write that the deletion is part of: what goes with rows
    that leave no revision of their own names that one.
    """
    if not keys:
        return []
    if collection.name in write_context.context.snapshot.catalogue.actions.root_tables_of:
        known = enclosing_revisions or {}
        written = _Deletion(write_context, collection).delete({key: known.get(key) for key in keys})
    else:
        rows: list[Values] = [{str(collection.primary_key): key} for key in keys]
        written = run_action(
            write_context, "delete", collection, (str(collection.primary_key),), rows
        )
    if len(written) < len(keys):
        raise not_found()
    return written


@dataclass(slots=True)
class _Deletion:
    """A deletion under way; `to_delete` are the rows that have been written down, by the tables that they lie in."""

    write_context: WriteContext
    root: Collection
    to_delete: dict[RootTable, RevisionsByRow] = field(default_factory=dict)

    @property
    def catalogue(self) -> Catalogue:
        return self.write_context.context.snapshot.catalogue

    @property
    def actions(self) -> ReferentialActions:
        return self.catalogue.actions

    def delete(self, keys: RevisionsByRow) -> list[WrittenRow]:
        """Delete rows of the root, each part of the write with that revision; return their keys and own revisions."""
        root = self.root
        noted: RevisionsByRow = {}
        for root_table in self.actions.root_tables_of[root.name]:
            noted.update(self._note_roots(root_table, keys))
        has_revisions = root.accountability == "all"
        written = [(key, revision if has_revisions else None) for key, revision in noted.items()]
        if len(written) < len(keys):
            return written
        self._note_cascades()
        self._clear_references()
        arguments = ArgumentSlots()
        gone = run_cached(
            self.write_context,
            ("remove", root.name),
            lambda: referential.delete_recorded(root, arguments),
            [array(list(keys))],
        )
        return written if gone[0][0] >= len(keys) else []

    def _note_roots(self, root_table: RootTable, keys: RevisionsByRow) -> RevisionsByRow:
        """Write down the rows of the root that lie in a table; return the keys of these with their revisions."""
        side = KeySide(
            root_table.table, (str(self.root.primary_key),), self._key(root_table), self.root
        )
        rows = run_cached(
            self.write_context,
            ("beginning", self.root.name, root_table),
            lambda: referential.record_deleted(RowReference(side), ArgumentSlots()),
            _values(keys, []),
        )
        self.to_delete[root_table] = {mark: revision for mark, revision, _ in rows}
        return {key: revision for _, revision, key in rows}

    def _note_cascades(self) -> None:
        """Write down everything that goes as well, one step away from the root after the other."""
        wave = {root_table: dict(rows) for root_table, rows in self.to_delete.items()}
        while wave:
            beyond: dict[RootTable, RevisionsByRow] = {}
            for action in self._actions_on(wave, "CASCADE"):
                noted = self._note_deleted(action, wave[action.foreign_root_table])
                beyond.setdefault(action.root_table, {}).update(noted)
                self.to_delete.setdefault(action.root_table, {}).update(noted)
            wave = {root_table: rows for root_table, rows in beyond.items() if rows}

    def _clear_references(self) -> None:
        """Change the rows that stay and lose what they point to."""
        for action in self._actions_on(self.to_delete, "SET NULL", "SET DEFAULT"):
            run_cached(
                self.write_context,
                ("unset", action),
                lambda: self._clearing_statement(action),  # noqa: B023
                _values(
                    self.to_delete[action.foreign_root_table],
                    list(self.to_delete.get(action.root_table, ())),
                ),
            )

    def _clearing_statement(self, action: ReferentialAction) -> Fragment:
        to_default = action.on_delete == "SET DEFAULT"
        return referential.clear_references(
            self._reference(action), ArgumentSlots(), changed=action.changed, to_default=to_default
        )

    def _note_deleted(self, action: ReferentialAction, above: RevisionsByRow) -> RevisionsByRow:
        """Write down the rows that go with those above; rows that nothing else is asked about stay in the database."""
        root_table, incoming_keys = action.root_table, self.actions.incoming_keys
        count_only = root_table not in self.actions.by_root_table and incoming_keys[root_table] == 1
        rows = run_cached(
            self.write_context,
            ("going", action),
            lambda: referential.record_deleted(
                self._reference(action), ArgumentSlots(), count_only=count_only
            ),
            _values(above, self._seen_before(root_table)),
        )
        return {} if count_only else dict(rows)

    def _seen_before(self, root_table: RootTable) -> list[str]:
        """Return the rows that could be met once more: by one foreign key no row is met twice, unless it is a root."""
        is_root = root_table in self.actions.root_tables_of[self.root.name]
        return (
            list(self.to_delete.get(root_table, ()))
            if is_root or self.actions.incoming_keys[root_table] > 1
            else []
        )

    def _reference(self, action: ReferentialAction) -> RowReference:
        root_table, above = action.root_table, action.foreign_root_table
        collection = self.catalogue.collections.get(root_table.collection or "")
        return RowReference(
            KeySide(action.table, action.columns, self._key(root_table), collection),
            KeySide(action.foreign_table, action.foreign_columns, self._key(above)),
        )

    def _key(self, root_table: RootTable) -> Field | None:
        return (
            None
            if root_table.key is None
            else self.catalogue.collections[str(root_table.collection)].fields[root_table.key]
        )

    def _actions_on(
        self, root_tables: Mapping[RootTable, RevisionsByRow], *acts: str
    ) -> Iterator[ReferentialAction]:
        """Yield the foreign keys to tables that act in one of these ways, in an order that is always the same."""
        for root_table in sorted(
            root_tables,
            key=lambda root_table: (root_table.table.schema or "", root_table.table.name),
        ):
            for action in self.actions.by_root_table.get(root_table, ()):
                if action.on_delete in acts:
                    yield action


def _values(above: RevisionsByRow, known: list[str]) -> list[object]:
    revisions = [None if revision is None else str(revision) for revision in above.values()]
    return [array(list(above)), array(revisions), array(known)]
