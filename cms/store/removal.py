"""Rows deleted, and what the database does to others because of it (ON DELETE), all of it in the history.

Where no foreign key changes or deletes other rows, a deletion is one statement. Elsewhere the rows that go are locked
and written down first, from those above to those below them and table by table; then rows that lose what they point to
are changed; then the database deletes, by its own rules. A statement is for all rows of a table, however many.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from cms.errors import not_found
from cms.query import referential
from cms.query.arrays import array
from cms.query.referential import Reference
from cms.query.write import Arguments
from cms.schema.model import Catalogue, Collection, Constraint
from cms.schema.payload import Values
from cms.store.rows import Session, Written, run_action, run_kept

Revisions = dict[str, int | None]
"""Keys of rows that go, each with the revision of its deletion, or of the nearest one above that has any."""


def delete_rows(
    session: Session, collection: Collection, keys: Sequence[str], *, around: Mapping[str, int | None] | None = None
) -> list[Written]:
    """Delete rows by their keys; one unknown key refuses them all.

    `around` holds, by key, the revision of the write that the deletion is part of: what goes with rows that leave no
    revision of their own names that one.
    """
    if not keys:
        return []
    if session.scene.snapshot.catalogue.actions.get(collection.name):
        known = around or {}
        written = _Removal(session, collection).delete({key: known.get(key) for key in keys})
    else:
        rows: list[Values] = [{str(collection.primary_key): key} for key in keys]
        written = run_action(session, "delete", collection, (str(collection.primary_key),), rows)
    if len(written) < len(keys):
        raise not_found()
    return written


@dataclass(slots=True)
class _Removal:
    """A deletion under way; `going` are the rows that have been written down, by collection."""

    session: Session
    root: Collection
    going: dict[str, Revisions] = field(default_factory=dict)
    arrivals: Counter[str] = field(default_factory=Counter)
    """How many foreign keys lead to a table."""

    def __post_init__(self) -> None:
        self.arrivals.update(key.table for keys in self.catalogue.actions.values() for key in keys)

    @property
    def catalogue(self) -> Catalogue:
        return self.session.scene.snapshot.catalogue

    def delete(self, keys: Revisions) -> list[Written]:
        """Delete rows of the root, each part of the write with that revision; return their keys and own revisions."""
        root = self.root
        itself = Reference(root, root.key, root, str(root.primary_key))
        noted = self._note(itself, keys)
        self.going[root.name] = noted
        has_revisions = root.accountability == "all"
        written = [(key, revision if has_revisions else None) for key, revision in noted.items()]
        if len(written) < len(keys):
            return written
        self._follow()
        self._unset()
        arguments = Arguments()
        gone = run_kept(
            self.session, ("remove", root.name), lambda: referential.remove(root, arguments), [array(list(keys))]
        )
        return written if gone[0][0] == len(keys) else []

    def _follow(self) -> None:
        """Write down everything that goes as well, one step away from the root after the other."""
        wave = {self.root.name: self.going[self.root.name]}
        while wave:
            beyond: dict[str, Revisions] = {}
            for constraint in self._keys_to(wave, "CASCADE"):
                noted = self._note(self._reference(constraint), wave[constraint.foreign_table])
                beyond.setdefault(constraint.table, {}).update(noted)
                self.going.setdefault(constraint.table, {}).update(noted)
            wave = {name: rows for name, rows in beyond.items() if rows}

    def _unset(self) -> None:
        """Change the rows that stay and lose what they point to."""
        for constraint in self._keys_to(self.going, "SET NULL", "SET DEFAULT"):
            reference, to_default = self._reference(constraint), constraint.on_delete == "SET DEFAULT"
            values = _values(self.going[constraint.foreign_table], list(self.going.get(constraint.table, ())))
            run_kept(
                self.session,
                ("unset", constraint),
                lambda: referential.unset(reference, Arguments(), to_default=to_default),  # noqa: B023
                values,
            )

    def _note(self, reference: Reference, above: Revisions) -> Revisions:
        """Write down the rows that go with those above; rows that nothing else is asked about stay in the database."""
        name = reference.collection.name
        counted = name not in self.catalogue.actions and self.arrivals[name] == 1
        rows = run_kept(
            self.session,
            ("going", name, reference.column.name, reference.above.name),
            lambda: referential.note_going(reference, Arguments(), counted=counted),
            _values(above, self._known(name)),
        )
        return {} if counted else dict(rows)

    def _known(self, name: str) -> list[str]:
        """Return the rows that could be met once more: by one foreign key no row is met twice, unless it is a root."""
        return list(self.going.get(name, ())) if self.arrivals[name] > 1 or name == self.root.name else []

    def _reference(self, constraint: Constraint) -> Reference:
        collections = self.catalogue.collections
        owner, above = collections[constraint.table], collections[constraint.foreign_table]
        return Reference(owner, owner.fields[constraint.column], above, constraint.foreign_column)

    def _keys_to(self, tables: dict[str, Revisions], *actions: str) -> Iterator[Constraint]:
        """Yield the foreign keys to tables that act in one of these ways, in an order that is always the same."""
        for table in sorted(tables):
            for constraint in self.catalogue.actions.get(table, ()):
                if constraint.on_delete in actions:
                    yield constraint


def _values(above: Revisions, known: list[str]) -> list[object]:
    revisions = [None if revision is None else str(revision) for revision in above.values()]
    return [array(list(above)), array(revisions), array(known)]
