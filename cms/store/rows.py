"""How rows are inserted and changed, at any depth and of any collection, with their history.

`insert_rows` and `change_rows` take many rows of one collection and run one statement for each set of equal columns
(cms/query/write.py); `delete_rows` is in cms/store/removal.py. What may be written has been decided before they are
called.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass

from cms.errors import invalid_payload, not_found
from cms.fragment import Fragment
from cms.query import locks, write
from cms.query.arrays import array
from cms.query.bind import Context, bound
from cms.query.statement import Statement
from cms.query.write import Arguments
from cms.schema.model import Collection
from cms.schema.payload import Values
from cms.store.database import Row, Transaction
from cms.store.judging import Judge
from cms.store.statements import statement
from cms.store.store import Caller, Scene, Store

Columns = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Session:
    """Everything that one write goes by: its transaction, structure and rights, and who it is for."""

    store: Store
    transaction: Transaction
    scene: Scene
    caller: Caller
    judge: Judge
    act: str | None = None
    meanwhile: Callable[[], None] | None = None
    """What can be done while the database writes."""

    @property
    def author(self) -> tuple[str | None, ...]:
        """What the history says of who did it."""
        return author(self.scene, self.caller)


Written = tuple[str, int | None]
"""A row as it was written: its key, and its revision where it left one."""


def author(scene: Scene, caller: Caller) -> tuple[str | None, ...]:
    """Return the author's values of `Arguments`."""
    return scene.actor.user, caller.ip, caller.user_agent, caller.origin


def insert_rows(session: Session, collection: Collection, rows: Sequence[Values]) -> list[Written]:
    """Insert rows and return them in their order."""
    groups = alike(rows)
    if len(groups) < 2:
        return _insert_alike(session, collection, rows) if rows else []
    rows = _placed(session, collection, _numbered(session, collection, rows))
    found: dict[int, Written] = {}
    for places in groups.values():  # in the order that cms/store/circles.py goes by
        found.update(zip(places, _insert_alike(session, collection, [rows[place] for place in places]), strict=True))
    return [found[place] for place in range(len(rows))]


def _insert_alike(session: Session, collection: Collection, rows: Sequence[Values]) -> list[Written]:
    written: list[Written] = run_action(session, "insert", collection, tuple(sorted(rows[0])), rows)
    if len(written) != len(rows):  # a trigger of the table may turn rows away
        raise invalid_payload("The database did not take every item", collection=collection.name)
    return written


def change_rows(session: Session, collection: Collection, rows: Sequence[tuple[str, Values]]) -> list[Written]:
    """Change rows by their keys and return them in their order; one unknown key refuses them all.

    A row without values stays as it is; the history tells the act.
    """
    key = str(collection.primary_key)
    values = [{key: found, **given} for found, given in rows]
    groups = alike(values)
    if len(groups) > 1:
        lock_rows(session, collection, [found for found, _ in rows])
    written: dict[int, Written] = {}
    for names, places in groups.items():
        columns = (key, *(name for name in names if name != key))
        action = "update" if len(columns) > 1 else "touch"
        returned = run_action(session, action, collection, columns, [values[place] for place in places])
        if len(returned) < len(places):
            raise not_found()
        written.update((places[number - 1], (found, revision)) for number, found, revision in returned)
    return [written[place] for place in range(len(rows))]


def lock_rows(session: Session, collection: Collection, keys: Sequence[str]) -> None:
    """Hold rows until the transaction ends, taken in the order of their keys as by everybody else."""
    key = str(collection.primary_key)
    rows: list[Values] = [{key: found} for found in keys]
    run_action(session, "lock", collection, (key,), rows)


def lock_list(session: Session, collection: Collection, far: str, *, keys: Sequence[str], nears: Sequence[str]) -> None:
    """Hold rows by their keys, and all that point in the column `far` to any of `nears`."""
    values = [array(keys), array(nears)]
    run_kept(
        session, ("lock list", collection.name, far), lambda: locks.lock_list(collection, far, Arguments()), values
    )


def column_by_key(session: Session, collection: Collection, column: str, keys: Sequence[str]) -> dict[str, str | None]:
    """Return what rows hold in one column, by their keys."""

    def printed() -> Fragment:
        return locks.column_by_key(collection, column, Arguments())

    return dict(run_kept(session, ("column", collection.name, column), printed, [array(keys)]))


def link_revisions(session: Session, links: Sequence[tuple[int, int]]) -> None:
    """Give revisions that this transaction has made their parents, each the revision of the write around it."""
    if links:
        revisions, parents = zip(*links, strict=True)
        session.transaction.execute(statement("link_revisions"), (list(revisions), list(parents)))


def draw_revisions(session: Session, count: int) -> list[int]:
    """Return numbers that no revision has, for `pass_revisions_on`."""
    if not count:
        return []
    return [number for (number,) in session.transaction.execute(statement("draw_revisions"), (count,))]


def pass_revisions_on(session: Session, parents: Mapping[int, int | None]) -> None:
    """Give revisions that this transaction has made under numbers that were drawn their true parents, if any."""
    if parents:
        session.transaction.execute(statement("pass_revisions_on"), (list(parents), list(parents.values())))


def pass_keys(session: Session, collection: Collection, keys: Sequence[str]) -> None:
    """Let the automatic keys of a collection go on behind given ones, before any of them is drawn."""
    if keys and collection.key.counts_up:
        values = collection.name, collection.key.name, array(keys)
        session.transaction.execute(statement("pass_keys"), values)


def alike(rows: Sequence[Values]) -> dict[Columns, list[int]]:
    """Group the places of rows by their columns: a column that is not named gets its default."""
    groups: dict[Columns, list[int]] = {}
    by_order: dict[Columns, list[int]] = {}
    for place, row in enumerate(rows):
        by_order.setdefault(tuple(row), []).append(place)
    for names, places in by_order.items():
        groups.setdefault(tuple(sorted(names)), []).extend(places)
    return {names: sorted(places) for names, places in groups.items()} if len(by_order) > len(groups) else groups


def finished(fragment: Fragment) -> Statement:
    """Number a statement's parameters, for the cache of plans."""
    text, values = fragment.numbered()
    return Statement(text, values, (), ())


def arrays(columns: Columns, rows: Sequence[Values], *, single: bool) -> list[object]:
    """Return the values of the columns: of one row as they are, of several as one array for each column."""
    if single:
        return [rows[0][name] for name in columns]
    if not columns:
        return [str(len(rows))]
    return [array([row[name] for row in rows]) for name in columns]


def run_kept(session: Session, plan: Hashable, printed: Callable[[], Fragment], values: Sequence[object]) -> list[Row]:
    """Run a statement on these values, printed once for all that are called alike."""
    found = session.scene.snapshot.plans.setdefault_with(plan, lambda: finished(printed()))
    return _execute(session, found, (session.author, values))


_PRINTERS = {"insert": write.insert, "update": write.update}
_BY_KEY = {"touch": write.touch, "delete": write.delete, "lock": locks.lock}


def run_action(
    session: Session, action: str, collection: Collection, columns: Columns, rows: Sequence[Values]
) -> list[Row]:
    """Run a statement, printed once for all writes of its shape."""
    single = len(rows) == 1 and action != "lock"

    def printed() -> Fragment:
        arguments = Arguments(single=single, act=session.act)
        if action in _BY_KEY:
            return _BY_KEY[action](collection, arguments)
        fields = [collection.fields[name] for name in columns]
        return _PRINTERS[action](collection, fields, arguments)

    plan = action, session.act, collection.name, columns, single
    return run_kept(session, plan, printed, arrays(columns, rows, single=single))


def _execute(session: Session, found: Statement, literals: Sequence[Sequence[object]]) -> list[Row]:
    values = bound(found.values, Context([value for part in literals for value in part]))
    return session.transaction.execute(found.text, values, meanwhile=session.meanwhile)


def _numbered(session: Session, collection: Collection, rows: Sequence[Values]) -> Sequence[Values]:
    """Give rows that go in by several statements their automatic keys beforehand, in the order of the rows."""
    key = collection.key
    if not key.column or not key.column.auto_increment or key.column.generated:
        return rows
    given = {value for row in rows if (value := row.get(key.name)) is not None}
    bare = [place for place, row in enumerate(rows) if row.get(key.name) is None]
    numbers = dict(zip(bare, _drawn(session, collection, given, count=len(bare)), strict=False))
    return [{**row, key.name: numbers[place]} if place in numbers else row for place, row in enumerate(rows)]


def _drawn(session: Session, collection: Collection, given: set[str], *, count: int) -> list[str]:
    """Return the next automatic keys, without those that rows of the call bring; none where no sequence makes them."""
    drawn: list[str] = []
    while len(drawn) < count:
        values = collection.name, collection.key.name, str(count - len(drawn))
        keys = [number for (number,) in session.transaction.execute(statement("next_keys"), values)]
        if not keys:
            break
        drawn += [number for number in keys if number not in given]
    return drawn


def _placed(session: Session, collection: Collection, rows: Sequence[Values]) -> Sequence[Values]:
    """Give rows that go in by several statements their places in the manual order, in the order of the rows."""
    placed = write.placed_by(collection)
    if placed is None:
        return rows
    ((last,),) = session.transaction.run(write.last_place(placed))
    return [{placed.name: str(last + number), **row} for number, row in enumerate(rows, start=1)]
