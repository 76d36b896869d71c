"""How rows are inserted and changed, at any depth and of any collection, with their history.

`insert_rows` and `update_rows` take many rows of one collection and run one statement for each set of equal columns
(cms/query/sql/write.py); `delete_rows` is in cms/items/write/deletion.py. What may be written has been decided before
they are called.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass

from cms.database.connections import Row, Transaction
from cms.database.statements import statement
from cms.errors import invalid_payload, not_found
from cms.fragment import Fragment
from cms.items.write.authorizing import WriteAuthorizer
from cms.query.plan.bindings import Bindings, bind_values
from cms.query.sql import locks, write
from cms.query.sql.arguments import ArgumentSlots
from cms.query.sql.arrays import array
from cms.query.sql.statement import Statement
from cms.schema.model import Collection
from cms.schema.payload import Values
from cms.store.context import RequestContext
from cms.store.identity import ClientInfo
from cms.store.store import Store

Columns = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class WriteContext:
    """Everything that one write goes by: its transaction, structure and rights, and who it is for."""

    store: Store
    transaction: Transaction
    context: RequestContext
    client: ClientInfo
    authorizer: WriteAuthorizer
    history_action: str | None = None
    while_waiting: Callable[[], None] | None = None
    """What can be done while the database writes."""

    @property
    def author(self) -> tuple[str | None, ...]:
        """What the history says of who did it."""
        return author(self.context, self.client)


WrittenRow = tuple[str, int | None]
"""A row as it was written: its key, and its revision where it left one."""


def author(context: RequestContext, client: ClientInfo) -> tuple[str | None, ...]:
    """Return the author's values of `ArgumentSlots`."""
    return context.actor.user, client.ip, client.user_agent, client.origin


def insert_rows(
    write_context: WriteContext, collection: Collection, rows: Sequence[Values]
) -> list[WrittenRow]:
    """Insert rows and return them in their order."""
    groups = group_by_columns(rows)
    if len(groups) < 2:
        return _insert_group(write_context, collection, rows) if rows else []
    rows = _with_sort_values(write_context, collection, _with_keys(write_context, collection, rows))
    found: dict[int, WrittenRow] = {}
    for places in groups.values():  # in the order that cms/items/write/deferred_keys.py goes by
        found.update(
            zip(
                places,
                _insert_group(write_context, collection, [rows[place] for place in places]),
                strict=True,
            )
        )
    return [found[place] for place in range(len(rows))]


def _insert_group(
    write_context: WriteContext, collection: Collection, rows: Sequence[Values]
) -> list[WrittenRow]:
    written: list[WrittenRow] = run_action(
        write_context, "insert", collection, tuple(sorted(rows[0])), rows
    )
    if len(written) != len(rows):  # a trigger of the table may turn rows away
        raise invalid_payload("The database did not take every item", collection=collection.name)
    return written


def update_rows(
    write_context: WriteContext, collection: Collection, rows: Sequence[tuple[str, Values]]
) -> list[WrittenRow]:
    """Change rows by their keys and return them in their order; one unknown key refuses them all.

    A row without values stays as it is; the history tells the act.
    """
    key = str(collection.primary_key)
    values = [{key: found, **given} for found, given in rows]
    groups = group_by_columns(values)
    if len(groups) > 1:
        lock_rows(write_context, collection, [found for found, _ in rows])
    written: dict[int, WrittenRow] = {}
    for names, places in groups.items():
        columns = (key, *(name for name in names if name != key))
        action = "update" if len(columns) > 1 else "touch"
        returned = run_action(
            write_context, action, collection, columns, [values[place] for place in places]
        )
        if len(returned) < len(places):
            raise not_found()
        written.update(
            (places[number - 1], (found, revision)) for number, found, revision in returned
        )
    return [written[place] for place in range(len(rows))]


def lock_rows(write_context: WriteContext, collection: Collection, keys: Sequence[str]) -> None:
    """Hold rows until the transaction ends, taken in the order of their keys as by everybody else."""
    key = str(collection.primary_key)
    rows: list[Values] = [{key: found} for found in keys]
    run_action(write_context, "lock", collection, (key,), rows)


def lock_list(
    write_context: WriteContext,
    collection: Collection,
    far: str,
    *,
    keys: Sequence[str],
    near_values: Sequence[str],
) -> None:
    """Hold rows by their keys, and all that point in the column `far` to any of `near_values`."""
    values = [array(keys), array(near_values)]
    run_cached(
        write_context,
        ("lock list", collection.name, far),
        lambda: locks.lock_list(collection, far, ArgumentSlots()),
        values,
    )


def column_by_key(
    write_context: WriteContext, collection: Collection, column: str, keys: Sequence[str]
) -> dict[str, str | None]:
    """Return what rows hold in one column, by their keys."""

    def printed() -> Fragment:
        return locks.column_by_key(collection, column, ArgumentSlots())

    return dict(
        run_cached(write_context, ("column", collection.name, column), printed, [array(keys)])
    )


def link_revisions(write_context: WriteContext, links: Sequence[tuple[int, int]]) -> None:
    """Give revisions that this transaction has made their parents, each the revision of the write around it."""
    if links:
        revisions, parents = zip(*links, strict=True)
        write_context.transaction.execute(
            statement("link_revisions"), (list(revisions), list(parents))
        )


def reserve_revisions(write_context: WriteContext, count: int) -> list[int]:
    """Return numbers that no revision has, for `replace_reserved_revisions`."""
    if not count:
        return []
    return [
        number
        for (number,) in write_context.transaction.execute(statement("draw_revisions"), (count,))
    ]


def replace_reserved_revisions(
    write_context: WriteContext, parents: Mapping[int, int | None]
) -> None:
    """Give revisions that this transaction has made under numbers that were drawn their true parents, if any."""
    if parents:
        write_context.transaction.execute(
            statement("pass_revisions_on"), (list(parents), list(parents.values()))
        )


def advance_keys(write_context: WriteContext, collection: Collection, keys: Sequence[str]) -> None:
    """Let the automatic keys of a collection go on behind given ones, before any of them is drawn."""
    if keys and collection.key.has_sequence:
        values = collection.name, collection.key.name, array(keys)
        write_context.transaction.execute(statement("pass_keys"), values)


def group_by_columns(rows: Sequence[Values]) -> dict[Columns, list[int]]:
    """Group the places of rows by their columns: a column that is not named gets its default."""
    groups: dict[Columns, list[int]] = {}
    by_order: dict[Columns, list[int]] = {}
    for place, row in enumerate(rows):
        by_order.setdefault(tuple(row), []).append(place)
    for names, places in by_order.items():
        groups.setdefault(tuple(sorted(names)), []).extend(places)
    return (
        {names: sorted(places) for names, places in groups.items()}
        if len(by_order) > len(groups)
        else groups
    )


def finish_statement(fragment: Fragment) -> Statement:
    """Number a statement's parameters, for the cache of plans."""
    text, values = fragment.numbered()
    return Statement(text, values, (), ())


def column_values(columns: Columns, rows: Sequence[Values], *, single: bool) -> list[object]:
    """Return the values of the columns: of one row as they are, of several as one array for each column."""
    if single:
        return [rows[0][name] for name in columns]
    if not columns:
        return [str(len(rows))]
    return [array([row[name] for row in rows]) for name in columns]


def run_cached(
    write_context: WriteContext,
    plan: Hashable,
    printed: Callable[[], Fragment],
    values: Sequence[object],
) -> list[Row]:
    """Run a statement on these values, printed once for all that are called alike."""
    found = write_context.context.snapshot.statements.setdefault_with(
        plan, lambda: finish_statement(printed())
    )
    return _execute(write_context, found, (write_context.author, values))


_PRINTERS = {"insert": write.insert, "update": write.update}
_BY_KEY = {"touch": write.touch, "delete": write.delete, "lock": locks.lock_by_key}


def run_action(
    write_context: WriteContext,
    action: str,
    collection: Collection,
    columns: Columns,
    rows: Sequence[Values],
) -> list[Row]:
    """Run a statement, printed once for all writes of its shape."""
    single = len(rows) == 1 and action != "lock"

    def printed() -> Fragment:
        arguments = ArgumentSlots(single=single, history_action=write_context.history_action)
        if action in _BY_KEY:
            return _BY_KEY[action](collection, arguments)
        fields = [collection.fields[name] for name in columns]
        return _PRINTERS[action](collection, fields, arguments)

    plan = action, write_context.history_action, collection.name, columns, single
    return run_cached(write_context, plan, printed, column_values(columns, rows, single=single))


def _execute(
    write_context: WriteContext, found: Statement, literals: Sequence[Sequence[object]]
) -> list[Row]:
    values = bind_values(found.values, Bindings([value for part in literals for value in part]))
    return write_context.transaction.execute(
        found.text, values, while_waiting=write_context.while_waiting
    )


def _with_keys(
    write_context: WriteContext, collection: Collection, rows: Sequence[Values]
) -> Sequence[Values]:
    """Give rows that go in by several statements their automatic keys beforehand, in the order of the rows."""
    key = collection.key
    if not key.column or not key.column.auto_increment or key.column.is_generated:
        return rows
    given = {value for row in rows if (value := row.get(key.name)) is not None}
    bare = [place for place, row in enumerate(rows) if row.get(key.name) is None]
    numbers = dict(
        zip(bare, _next_keys(write_context, collection, given, count=len(bare)), strict=False)
    )
    return [
        {**row, key.name: numbers[place]} if place in numbers else row
        for place, row in enumerate(rows)
    ]


def _next_keys(
    write_context: WriteContext, collection: Collection, given: set[str], *, count: int
) -> list[str]:
    """Return the next automatic keys, without those that rows of the call bring; none where no sequence makes them."""
    drawn: list[str] = []
    while len(drawn) < count:
        values = collection.name, collection.key.name, str(count - len(drawn))
        keys = [
            number
            for (number,) in write_context.transaction.execute(statement("next_keys"), values)
        ]
        if not keys:
            break
        drawn += [number for number in keys if number not in given]
    return drawn


def _with_sort_values(
    write_context: WriteContext, collection: Collection, rows: Sequence[Values]
) -> Sequence[Values]:
    """Give rows that go in by several statements their places in the manual order, in the order of the rows."""
    placed = write.auto_sort_field(collection)
    if placed is None:
        return rows
    ((last,),) = write_context.transaction.run(write.last_position(placed))
    return [{placed.name: str(last + number), **row} for number, row in enumerate(rows, start=1)]
