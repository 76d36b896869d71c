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
from cms.query import referential
from cms.query.arrays import array
from cms.query.referential import Reference, Side
from cms.query.write import Arguments
from cms.schema.actions import Action, Actions, Whole
from cms.schema.model import Catalogue, Collection, Field
from cms.schema.payload import Values
from cms.store.rows import Session, Written, run_action, run_kept

Revisions = dict[str, int | None]
"""Marks of rows that go, each with the revision of its deletion, or of the nearest one above that has any."""


def delete_rows(
    session: Session, collection: Collection, keys: Sequence[str], *, around: Mapping[str, int | None] | None = None
) -> list[Written]:
    """Delete rows by their keys; one unknown key refuses them all.

    `around` holds, by key, the revision of the write that the deletion is part of: what goes with rows that leave no
    revision of their own names that one.
    """
    if not keys:
        return []
    if collection.name in session.scene.snapshot.catalogue.actions.begins:
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
    """A deletion under way; `going` are the rows that have been written down, by the tables that they lie in."""

    session: Session
    root: Collection
    going: dict[Whole, Revisions] = field(default_factory=dict)

    @property
    def catalogue(self) -> Catalogue:
        return self.session.scene.snapshot.catalogue

    @property
    def actions(self) -> Actions:
        return self.catalogue.actions

    def delete(self, keys: Revisions) -> list[Written]:
        """Delete rows of the root, each part of the write with that revision; return their keys and own revisions."""
        root = self.root
        noted: Revisions = {}
        for whole in self.actions.begins[root.name]:
            noted.update(self._begin(whole, keys))
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
        return written if gone[0][0] >= len(keys) else []

    def _begin(self, whole: Whole, keys: Revisions) -> Revisions:
        """Write down the rows of the root that lie in a table; return the keys of these with their revisions."""
        side = Side(whole.table, (str(self.root.primary_key),), self._key(whole), self.root)
        rows = run_kept(
            self.session,
            ("beginning", self.root.name, whole),
            lambda: referential.note_going(Reference(side), Arguments()),
            _values(keys, []),
        )
        self.going[whole] = {mark: revision for mark, revision, _ in rows}
        return {key: revision for _, revision, key in rows}

    def _follow(self) -> None:
        """Write down everything that goes as well, one step away from the root after the other."""
        wave = {whole: dict(rows) for whole, rows in self.going.items()}
        while wave:
            beyond: dict[Whole, Revisions] = {}
            for action in self._actions_to(wave, "CASCADE"):
                noted = self._note(action, wave[action.foreign_whole])
                beyond.setdefault(action.whole, {}).update(noted)
                self.going.setdefault(action.whole, {}).update(noted)
            wave = {whole: rows for whole, rows in beyond.items() if rows}

    def _unset(self) -> None:
        """Change the rows that stay and lose what they point to."""
        for action in self._actions_to(self.going, "SET NULL", "SET DEFAULT"):
            run_kept(
                self.session,
                ("unset", action),
                lambda: self._unsetting(action),  # noqa: B023
                _values(self.going[action.foreign_whole], list(self.going.get(action.whole, ()))),
            )

    def _unsetting(self, action: Action) -> Fragment:
        to_default = action.on_delete == "SET DEFAULT"
        return referential.unset(self._reference(action), Arguments(), changed=action.changed, to_default=to_default)

    def _note(self, action: Action, above: Revisions) -> Revisions:
        """Write down the rows that go with those above; rows that nothing else is asked about stay in the database."""
        whole, arrivals = action.whole, self.actions.arrivals
        counted = whole not in self.actions.by_whole and arrivals[whole] == 1
        rows = run_kept(
            self.session,
            ("going", action),
            lambda: referential.note_going(self._reference(action), Arguments(), counted=counted),
            _values(above, self._known(whole)),
        )
        return {} if counted else dict(rows)

    def _known(self, whole: Whole) -> list[str]:
        """Return the rows that could be met once more: by one foreign key no row is met twice, unless it is a root."""
        is_root = whole in self.actions.begins[self.root.name]
        return list(self.going.get(whole, ())) if is_root or self.actions.arrivals[whole] > 1 else []

    def _reference(self, action: Action) -> Reference:
        whole, above = action.whole, action.foreign_whole
        collection = self.catalogue.collections.get(whole.collection or "")
        return Reference(
            Side(action.table, action.columns, self._key(whole), collection),
            Side(action.foreign_table, action.foreign_columns, self._key(above)),
        )

    def _key(self, whole: Whole) -> Field | None:
        return None if whole.key is None else self.catalogue.collections[str(whole.collection)].fields[whole.key]

    def _actions_to(self, wholes: Mapping[Whole, Revisions], *acts: str) -> Iterator[Action]:
        """Yield the foreign keys to tables that act in one of these ways, in an order that is always the same."""
        for whole in sorted(wholes, key=lambda whole: (whole.table.schema or "", whole.table.name)):
            for action in self.actions.by_whole.get(whole, ()):
                if action.on_delete in acts:
                    yield action


def _values(above: Revisions, known: list[str]) -> list[object]:
    revisions = [None if revision is None else str(revision) for revision in above.values()]
    return [array(list(above)), array(revisions), array(known)]
