"""Inserts and updates rows with their history, and locks and reads them before.

`insert_rows` and `update_rows` take any number of rows of one collection, and run one statement
for all rows that name the same columns (cms/query/sql/write.py). `delete_rows` is in deletion.py.
Nothing here checks permissions: the rows are authorized before.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from cms.database.connections import Row, single_value, single_values
from cms.database.error_mapping import Conflict
from cms.database.statements import statement
from cms.errors import Problem, Refused, not_found
from cms.fragment import Fragment
from cms.items.write.transaction.event_runs import cause_literals, flows_after
from cms.items.write.transaction.executor import Executor
from cms.items.write.transaction.row_indexes import at_indexes
from cms.query.sql import locks, write
from cms.query.sql.arguments import ArgumentSlots, FlowsByVerb, array
from cms.schema.model import Collection, Field, Kind
from cms.schema.payload import RowValues
from cms.schema.types.field_type import Trait

_TYPES_OF_ONE_TEXT = frozenset({"integer", "bigInteger", "string", "text", "uuid"})
"""Types whose values PostgreSQL writes as they are here once they are parsed."""

ColumnNames = tuple[str, ...]

WrittenRow = tuple[str, int | None]
"""A row as the database has written it: its key, and its revision if it left one."""


# Inserts and updates


def insert_rows(
    executor: Executor, collection: Collection, rows: Sequence[RowValues]
) -> list[WrittenRow]:
    """Insert rows and return them in their order.

    Raises `Refused` NOT_WRITTEN if a trigger keeps a row back, and `Conflict` for a value that the
    database refuses.
    """
    if not rows:
        return []
    groups = group_by_columns(rows)
    if len(groups) < 2:
        return _insert_group(executor, collection, rows)
    # Several statements would draw keys group by group: draw them before, in the order of rows.
    rows = _with_keys(executor, collection, rows)
    rows = _with_sort_values(executor, collection, rows)
    written: dict[int, WrittenRow] = {}
    for indexes in groups.values():  # cms/items/write/run/deferred_keys.py relies on this order
        group = _insert_group(executor, collection, at_indexes(rows, indexes))
        written.update(zip(indexes, group, strict=True))
    return at_indexes(written, range(len(rows)))


def _insert_group(
    executor: Executor, collection: Collection, rows: Sequence[RowValues]
) -> list[WrittenRow]:
    columns = tuple(sorted(rows[0]))
    single = len(rows) == 1
    values = column_values(columns, rows, single=single)
    written: list[WrittenRow] = _run_values(
        executor, "insert", collection, columns, values, single=single
    )
    if len(written) != len(rows):
        raise not_written(collection)
    _require_keys(collection, [key for key, _ in written])
    return written


def _require_keys(collection: Collection, keys: Sequence[str | None]) -> None:
    """Refuse written rows of a view without a key: only its triggers can give them one."""
    if None not in keys:
        return
    name = collection.key_name
    message = (
        f'The INSTEAD OF trigger of "{collection.name}" returns a row without its key: it must set '
        f'NEW."{name}".'
    )
    raise Refused(Problem("NOT_WRITTEN", message, {"collection": collection.name, "field": name}))


def not_written(collection: Collection) -> Refused:
    """Return the refusal of a write of which a trigger of the table has kept rows back."""
    message = f'The database has kept items of "{collection.name}" back: a trigger skips them.'
    return Refused(Problem("NOT_WRITTEN", message, {"collection": collection.name}))


def unmet_rows(executor: Executor, collection: Collection, keys: Sequence[str]) -> Refused:
    """Return the refusal of a change or deletion that has not met the rows of these keys."""
    if stored_keys(executor, collection, keys):
        return not_written(collection)
    return not_found()


def update_rows(
    executor: Executor, collection: Collection, keys: Sequence[str], rows: Sequence[RowValues]
) -> list[WrittenRow]:
    """Change rows by their keys and return them in their order.

    A key among the values of a row is its new one. A row without values stays as it is, and has an
    activity in the history. Raises `Refused`, after which nothing of the call may stay, NOT_FOUND
    if a row is gone and NOT_WRITTEN if a trigger keeps it back, and `Conflict` for a value that the
    database refuses.
    """
    groups = group_by_columns(rows)
    # Each statement locks its own group: in the order of all keys they are locked before.
    if len(groups) > 1:
        lock_rows(executor, collection, keys)
    written: dict[int, WrittenRow] = {}
    for columns, indexes in groups.items():
        group_keys = at_indexes(keys, indexes)
        group = at_indexes(rows, indexes)
        try:
            returned = _update_group(executor, collection, columns, group_keys, group)
        except Conflict as conflict:
            if len(groups) == 1:
                raise
            problem = with_exchange(conflict.problems[0])
            raise Conflict(problem, conflict.value, server_text=conflict.server_text) from conflict
        _require_keys(collection, [key for _, key, _ in returned])
        for number, key, revision in returned:  # PostgreSQL counts the rows from 1
            written[indexes[number - 1]] = (key, revision)
        if len(returned) < len(indexes):
            unmet = [index for index in indexes if index not in written]
            raise unmet_rows(executor, collection, at_indexes(keys, unmet))
    return at_indexes(written, range(len(rows)))


def _update_group(
    executor: Executor,
    collection: Collection,
    columns: ColumnNames,
    keys: Sequence[str],
    rows: Sequence[RowValues],
) -> list[Row]:
    """Change rows of the same columns, and return the number, key and revision of each."""
    single = len(rows) == 1
    values: list[object] = [keys[0] if single else array(keys)]
    if columns:
        values += column_values(columns, rows, single=single)
    # Without columns there is nothing to set: "touch" only adds activities to the history.
    action = "update" if columns else "touch"
    return _run_values(executor, action, collection, columns, values, single=single)


def group_by_columns(rows: Sequence[RowValues]) -> Mapping[ColumnNames, Sequence[int]]:
    """Group the indexes of rows by their columns.

    A statement has one list of columns: a row that does not name a column of its statement could
    not get the column's default, or keep its value.
    """
    orders = set(map(tuple, rows))
    # Nearly always all rows name the same columns in one order.
    if len(orders) == 1:
        return {tuple(sorted(orders.pop())): range(len(rows))}
    by_order: dict[ColumnNames, list[int]] = {}
    for index, row in enumerate(rows):
        by_order.setdefault(tuple(row), []).append(index)
    # Most rows name their columns in one order: sorting the few orders is cheaper than each row.
    groups: dict[ColumnNames, list[int]] = {}
    for names, indexes in by_order.items():
        groups.setdefault(tuple(sorted(names)), []).extend(indexes)
    if len(by_order) == len(groups):
        return groups
    # Groups of several orders are not in the order of the rows yet.
    return {names: sorted(indexes) for names, indexes in groups.items()}


def with_exchange(problem: Problem) -> Problem:
    """Tell how items exchange unique values, where several statements have changed them.

    A unique constraint is checked at the end of each statement.
    """
    if problem.code != "RECORD_NOT_UNIQUE":
        return problem
    how = "Items exchange such values in one array whose elements name the same fields."
    return replace(problem, message=f"{problem.message} {how}")


# Locks and columns


def lock_rows(executor: Executor, collection: Collection, keys: Sequence[str]) -> None:
    """Lock rows until the transaction ends, in the order of their keys as every write does."""
    if collection.kind is Kind.VIEW:
        lock_view(executor, collection)
    else:
        run_action_by_key(executor, "lock", collection, keys)


def lock_view(executor: Executor, collection: Collection) -> None:
    """Wait for the turn to write a view, until the transaction ends; nothing for a table."""
    if collection.kind is Kind.VIEW:
        executor.transaction.run(locks.lock_collection(collection))


def lock_list(
    executor: Executor,
    collection: Collection,
    far: Field,
    *,
    keys: Sequence[str],
    near_values: Sequence[str],
) -> None:
    """Lock rows by their keys, and all rows that hold one of `near_values` in the field `far`."""
    if collection.kind is Kind.VIEW:
        lock_view(executor, collection)
        return
    executor.run_cached(
        ("lock list", collection.name, _names(far)),
        lambda: locks.lock_list(collection, far, ArgumentSlots()),
        [array(keys), array(near_values)],
        collection=collection,
    )


def column_by_key(
    executor: Executor,
    collection: Collection,
    column: Field,
    keys: Sequence[str],
    *,
    cast: str = "text",
) -> dict[str, str | None]:
    """Return what rows hold in one column, as another type if one is given, by their keys."""
    rows = executor.run_cached(
        ("column", collection.name, _names(column), cast),
        lambda: locks.column_by_key(collection, column, ArgumentSlots(), cast),
        [array(keys)],
        collection=collection,
    )
    return dict(rows)


def list_values(
    executor: Executor,
    collection: Collection,
    far: Field,
    *,
    keys: Sequence[str],
    near_values: Sequence[str],
) -> dict[str, str]:
    """Return which of `near_values` rows hold in the field `far`, by their keys.

    Equal values may have several texts. Rows that hold none of them are left out.
    """
    rows = executor.run_cached(
        ("list values", collection.name, _names(far)),
        lambda: locks.list_values(collection, far, ArgumentSlots()),
        [array(keys), array(near_values), array(near_values)],
        collection=collection,
    )
    return dict(rows)


def _names(field: Field) -> ColumnNames:
    return tuple(part.name for part in field.key_fields)


def stored_keys(executor: Executor, collection: Collection, keys: Sequence[str]) -> dict[str, str]:
    """Return keys as they are stored, by their texts as sent; keys that no row has are left out."""
    rows = executor.run_cached(
        ("stored keys", collection.name),
        lambda: locks.stored_keys(collection, ArgumentSlots()),
        [array(keys), array(keys)],
        collection=collection,
    )
    return dict(rows)


def has_one_text(field: Field) -> bool:
    """Tell whether equal values of a field have one text, whoever writes it.

    A decimal may be 1 or 1.00, a timestamp has its own form in answers, and there are collations
    and types that ignore case.
    """
    if field.parts:
        return all(map(has_one_text, field.parts))
    if field.column is not None and field.column.is_nondeterministic:
        return False
    if Trait.EQUALITY in field.type.own_comparisons:
        return False
    return field.type.name in _TYPES_OF_ONE_TEXT


def as_stored(executor: Executor, collection: Collection, keys: Sequence[str]) -> Mapping[str, str]:
    """Return keys as PostgreSQL writes those of stored rows, by the keys as sent.

    The keys of rows are compared by their texts. A key that no row has stays as it is.
    """
    if not keys or has_one_text(collection.key):
        return dict(zip(keys, keys, strict=True))
    stored = stored_keys(executor, collection, keys)
    return {key: stored.get(key, key) for key in keys}


# Revisions


def link_revisions(executor: Executor, links: Sequence[tuple[int, int]]) -> None:
    """Give revisions of this transaction their parents, the revisions of the enclosing writes."""
    if links:
        revisions, parents = zip(*links, strict=True)
        arguments = (list(revisions), list(parents))
        executor.transaction.execute(statement("link_revisions"), arguments)


def reserve_revisions(executor: Executor, count: int) -> list[int]:
    """Return numbers that no revision has, for `replace_reserved_revisions`."""
    if not count:
        return []
    rows = executor.transaction.execute(statement("reserve_revisions"), (count,))
    return single_values(rows)


def replace_reserved_revisions(executor: Executor, parents: Mapping[int, int | None]) -> None:
    """Replace reserved numbers, as parents of revisions of this transaction, by the true ones."""
    if parents:
        arguments = (list(parents), list(parents.values()))
        executor.transaction.execute(statement("replace_parents"), arguments)


# Statements


def column_values(columns: ColumnNames, rows: Sequence[RowValues], *, single: bool) -> list[object]:
    """Return the values of one row as they are, those of several as one array for each column."""
    if single:
        return [rows[0][name] for name in columns]
    # Rows of defaults only: without any array the statement needs their number.
    if not columns:
        return [str(len(rows))]
    arrays: list[object] = []
    for name in columns:
        arrays.append(array([row[name] for row in rows]))
    return arrays


_PRINTERS = {"insert": write.insert, "update": write.update}
_VERB_OF_ACTION = {"insert": "create", "update": "update", "delete": "delete"}
"""The events of actions; the others are none."""
_PRINTERS_BY_KEY = {"touch": write.touch, "delete": write.delete, "lock": locks.lock_by_key}


def run_action_by_key(
    executor: Executor, action: str, collection: Collection, keys: Sequence[str]
) -> list[Row]:
    """Run the statement of an action that takes nothing but the keys of rows."""
    # The statement of a lock takes an array even for one row.
    single = len(keys) == 1 and action != "lock"
    values = [keys[0] if single else array(keys)]
    return _run_values(executor, action, collection, (), values, single=single)


def _run_values(
    executor: Executor,
    action: str,
    collection: Collection,
    columns: ColumnNames,
    values: Sequence[object],
    *,
    single: bool,
) -> list[Row]:
    """Run the statement of an action; it is printed once for all writes of its shape."""
    # The history's name of the action is a constant of the statement, and so a part of its key.
    history_action = executor.history_action
    flows: FlowsByVerb = ()
    if action in _VERB_OF_ACTION:
        verb = _VERB_OF_ACTION[action]
        events = executor.context.snapshot.events.of(collection.name)
        flows = flows_after(events, executor.client, collection, verb=verb)
    if flows:
        values = (*cause_literals(executor.context, executor.client), *values)

    def make_fragment() -> Fragment:
        arguments = ArgumentSlots(single=single, history_action=history_action, flows=flows)
        if action in _PRINTERS_BY_KEY:
            return _PRINTERS_BY_KEY[action](collection, arguments)
        fields = [collection.fields[name] for name in columns]
        return _PRINTERS[action](collection, fields, arguments)

    cache_key = (action, history_action, collection.name, columns, single, flows)
    return executor.run_cached(cache_key, make_fragment, values, collection=collection)


# Automatic keys and positions


def advance_keys(executor: Executor, collection: Collection, keys: Sequence[str]) -> None:
    """Advance the sequence of a collection past keys that new rows have already."""
    if keys and collection.key.has_sequence:
        arguments = (collection.name, collection.key.name, array(keys))
        executor.transaction.execute(statement("advance_keys"), arguments)


def _with_keys(
    executor: Executor, collection: Collection, rows: Sequence[RowValues]
) -> Sequence[RowValues]:
    """Give rows without a key their automatic keys, in the order of the rows."""
    key = collection.key
    if not key.column or not key.column.has_auto_increment or key.column.is_generated:
        return rows
    sent_keys: set[str] = set()
    keyless: list[int] = []
    for index, row in enumerate(rows):
        sent_key = row.get(key.name)
        if sent_key is None:
            keyless.append(index)
        else:
            sent_keys.add(sent_key)
    new_keys = _next_keys(executor, collection, sent_keys, count=len(keyless))
    completed = list(rows)
    # There are no new keys where no sequence makes them.
    for index, new_key in zip(keyless, new_keys, strict=False):
        completed[index] = {**rows[index], key.name: new_key}
    return completed


def _next_keys(
    executor: Executor, collection: Collection, sent_keys: set[str], *, count: int
) -> list[str]:
    """Return the next automatic keys, without those that rows of the call have already."""
    keys: list[str] = []
    # Keys that are left out are replaced in another round.
    while len(keys) < count:
        arguments = (collection.name, collection.key.name, str(count - len(keys)))
        rows = executor.transaction.execute(statement("next_keys"), arguments)
        if not rows:  # no sequence makes them
            break
        for key in single_values(rows):
            if key not in sent_keys:
                keys.append(key)
    return keys


def _with_sort_values(
    executor: Executor, collection: Collection, rows: Sequence[RowValues]
) -> Sequence[RowValues]:
    """Give rows their positions at the end of the manual order, in the order of the rows."""
    sort_field = write.auto_sort_field(collection)
    if sort_field is None:
        return rows
    last = single_value(executor.transaction.run(write.last_position(sort_field)))
    completed: list[RowValues] = []
    for number, row in enumerate(rows, start=1):
        # A row that names the sort field keeps its own value, even null.
        completed.append({sort_field.name: str(last + number), **row})
    return completed
