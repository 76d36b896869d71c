"""The printer of writes: one statement for any number of rows and for their history.

Every statement has the form

    WITH [v AS (the counters),] [old AS (the rows as they were, locked in the order of their keys),]
    rows AS (INSERT, UPDATE or DELETE … RETURNING key, history, answer),
    activities AS (INSERT …), revisions AS (INSERT …) [, runs AS (INSERT …)]
    SELECT … FROM rows

Values are sent as one array for each column, so that two rows and ten thousand are the same short
text, prepared once. Ids of the history are drawn where the rows are written: a join with the
history afterwards would take a hash or worse. Parameters are placeholders (`ArgumentSlots`), so
that a statement is printed once for all writes of its shape.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from cms.fragment import (
    EMPTY,
    Fragment,
    clause,
    commas,
    concat,
    fill,
    join,
    name,
    optional,
    param,
    text,
)
from cms.query.language.ast import Slot
from cms.query.sql.arguments import VERSION_SLOTS, ArgumentSlots, array_type, key_cast
from cms.query.sql.columns import numbered_outputs, numbered_rows, output_columns
from cms.query.sql.keys import (
    is_kept_key,
    key_equals,
    key_is_any,
    key_order,
    key_outputs,
    key_text,
)
from cms.query.sql.locks import row_lock
from cms.query.sql.write_events import event_columns, event_steps
from cms.query.sql.write_history import (
    ACTIVITY,
    HistoryEntry,
    Step,
    delta_of,
    history_columns,
    history_steps,
    tracked_columns,
    with_steps,
)
from cms.schema.model import Collection, Field
from cms.schema.types.field_type import Trait


class StoredRowTests(NamedTuple):
    """Conditions on a row before the write: the caller sees it, and may write it."""

    seen: Fragment
    writable: Fragment


@dataclass(frozen=True, slots=True)
class SingleStatement:
    """A write in one statement: counters, columns of the answer, and rules.

    The statement writes only while the counters are those of three literals, of which `version` is
    the first slot: it may outlive the version that it was printed for, and its caller always names
    the present one.

    Rules are conditions on a row (t0); None is no rule. `before` are tried on the row as it was.
    `after` must hold for the row as it then is, or nothing is written. `readable` says whether the
    caller may read that row. The answer has `rows.row_exists`, and behind it the results of
    `readable` and of `before.seen`.
    """

    version: int
    sent: Fragment | None = None
    """The number of rows of an insertion; None if it is one."""
    outputs: tuple[Fragment, ...] = ()
    before: StoredRowTests | None = None
    after: Fragment | None = None
    readable: Fragment | None = None


def insert(
    collection: Collection,
    columns: Sequence[Field],
    arguments: ArgumentSlots,
    *,
    single_statement: SingleStatement | None = None,
) -> Fragment:
    """Print the insertion of rows in their order.

    Its rows are key and revision, or the answer of a single statement.
    """
    # INSERT INTO "articles" AS t0 ("title") SELECT r.c0 FROM (VALUES ($1::text)) AS r (c0, n) ORDER
    # BY r.n RETURNING t0."id"::text AS item, nextval(…) AS activity, …
    names = []
    cells = []
    for index, field in enumerate(columns):
        names.append(name(field.name))
        cells.append(_cell(field, f"r.c{index}"))
    sort_field = auto_sort_field(collection)
    if sort_field and sort_field not in columns:
        names.append(name(sort_field.name))
        # The last one before the statement, whose own rows PostgreSQL does not show it.
        cells.append(fill("({0}) + r.n", last_position(sort_field)))
    conditions = [
        *version_conditions(single_statement),
        *_advance_sequences(collection, enumerate(columns), arguments),
    ]
    if single_statement and not arguments.single:
        single_statement = replace(single_statement, sent=_row_count(columns, arguments))
    # Rows without values take the defaults of all columns, and name none.
    column_list = fill(" ({0})", commas(names)) if names else EMPTY
    # PostgreSQL draws keys from sequences after it has sorted: in the order of the items.
    rows = fill(
        "INSERT INTO {0} AS t0{1} SELECT {2} FROM {3}{4} ORDER BY r.n RETURNING {5}",
        name(collection.name),
        column_list,
        commas(cells),
        _source(columns, arguments),
        clause(" WHERE ", conditions, separator=" AND "),
        _returning(collection, single_statement, event_columns(collection, arguments, None)),
    )
    return _statement(
        collection,
        arguments,
        (Step("rows", rows),),
        HistoryEntry("create", "rows.data"),
        single_statement,
    )


def update(
    collection: Collection,
    columns: Sequence[Field],
    arguments: ArgumentSlots,
    *,
    single_statement: SingleStatement | None = None,
) -> Fragment:
    """Print the change of rows, by their keys, which are the first argument.

    Its rows are the number of each row that was found, from 1, its key, and its revision when
    anything changed.
    """
    # WITH old AS (SELECT r.n, t0."id" AS k, r.c1, t0."title" AS w0 FROM … FOR NO KEY UPDATE OF t0),
    # rows AS (UPDATE "articles" AS t0 SET "title" = old.c1 FROM old WHERE t0."id" = old.k …)
    key = collection.key
    changing = tracked_columns(collection, columns)
    old = _old_rows(collection, columns, changing, arguments, single_statement=single_statement)
    assignments = []
    for index, field in enumerate(columns, start=1):
        assignments.append(concat(name(field.name), " = ", _cell(field, f"old.c{index}")))
    delta = text(", old.n")
    if collection.accountability == "all":
        delta = concat(", old.n, ", delta_of(changing), " AS delta")
    rows = fill(
        "UPDATE {0} AS t0 SET {1} FROM old WHERE {2}{5}{6} RETURNING {3}{4}",
        name(collection.name),
        commas(assignments),
        is_kept_key(key, "t0", "old"),
        _returning(collection, single_statement, event_columns(collection, arguments, columns)),
        delta,
        write_allowed(single_statement),
        _and(_advance_sequences(collection, enumerate(columns, start=1), arguments)),
    )
    history = HistoryEntry.of_changes("update")
    return _statement(
        collection, arguments, (Step("old", old), Step("rows", rows)), history, single_statement
    )


def _old_rows(
    collection: Collection,
    columns: Sequence[Field],
    changing: Sequence[Field],
    arguments: ArgumentSlots,
    *,
    single_statement: SingleStatement | None,
) -> Fragment:
    """Print the rows to change, locked: their new values, and the old ones of `changing`."""
    key = collection.key
    # The new values, and the old ones beside them: only `old` still sees the row as it was.
    old_columns = [text(f", r.c{index}") for index in range(1, len(columns) + 1)]
    for index, field in enumerate(changing):
        old_columns.append(concat(", t0.", name(field.name), f" AS w{index}"))
    old_columns.append(rule_results(single_statement))
    # In the order of keys: two writes that lock the same rows would otherwise wait for each other.
    return fill(
        "SELECT r.n, {0}{1} FROM {2} AS t0 JOIN {3} ON {4}{5} ORDER BY {6}{7}",
        key_outputs(key, "t0"),
        join("", old_columns),
        name(collection.name),
        _source([key, *columns], arguments),
        _is_sent_key(key, "t0"),
        _and(version_conditions(single_statement)),
        key_order(key, "t0"),
        row_lock(collection, "NO KEY UPDATE OF t0"),
    )


def _is_sent_key(key: Field, row: str) -> Fragment:
    return key_equals(key, row, text("r.c0") if key.parts else _cell(key, "r.c0"))


def touch(collection: Collection, arguments: ArgumentSlots) -> Fragment:
    """Print a change of no column, which leaves an activity only; it answers as `update`."""
    rows = fill(
        "SELECT r.n, {0} AS item, {1} AS activity FROM {2} AS t JOIN {3} ON {4}",
        key_text(collection.key, "t"),
        ACTIVITY,
        name(collection.name),
        _source([collection.key], arguments),
        _is_sent_key(collection.key, "t"),
    )
    return _statement(collection, arguments, (Step("rows", rows),), HistoryEntry("update"), None)


def delete(
    collection: Collection,
    arguments: ArgumentSlots,
    *,
    single_statement: SingleStatement | None = None,
) -> Fragment:
    """Print the deletion of rows by key; its rows are the keys and last revisions of rows found."""
    key = collection.key
    keys = arguments.column(0, key_cast(key))
    is_named = key_equals if arguments.single else key_is_any
    # A DELETE alone would lock the rows in the order in which it finds them.
    old = fill(
        "SELECT {0}{4} FROM {1} AS t0 WHERE {2}{3} ORDER BY {5}{6}",
        key_outputs(key, "t0"),
        name(collection.name),
        is_named(key, "t0", keys),
        _and(version_conditions(single_statement)),
        rule_results(single_statement),
        key_order(key, "t0"),
        row_lock(collection, "UPDATE"),
    )
    rows = fill(
        "DELETE FROM {0} AS t0 USING old WHERE {1}{3} RETURNING {2}",
        name(collection.name),
        is_kept_key(key, "t0", "old"),
        _returning(collection, single_statement, event_columns(collection, arguments, [])),
        write_allowed(single_statement),
    )
    history = HistoryEntry("delete", "NULL::json")
    return _statement(
        collection, arguments, (Step("old", old), Step("rows", rows)), history, single_statement
    )


def auto_sort_field(collection: Collection) -> Field | None:
    """Return the field of manual sorting, if new rows get the next position in it by themselves."""
    if collection.sort_field is None:
        return None
    field = collection.fields[collection.sort_field]
    if field.column is None or Trait.ARITHMETIC not in field.type.traits:
        return None
    if field.column.is_filled_by_database:
        return None
    return field


def last_position(sort_field: Field) -> Fragment:
    """Print the last position that is taken, 0 without any."""
    return fill(
        "SELECT coalesce(max(s.{0}), 0)::bigint FROM {1} AS s",
        name(sort_field.name),
        name(sort_field.collection),
    )


# The parts of a statement


def _statement(
    collection: Collection,
    arguments: ArgumentSlots,
    steps: Sequence[Step],
    history: HistoryEntry,
    single_statement: SingleStatement | None,
) -> Fragment:
    """Print the steps, the history of `rows`, and the answer."""
    parts = [
        *steps,
        *history_steps(
            collection, history, history_action=arguments.history_action, author=arguments.author()
        ),
        *event_steps(collection, arguments),
    ]
    # The counters come first: `old` and `rows` take them as a condition.
    if single_statement:
        parts.insert(0, Step("v", text("SELECT structure, access, flows FROM system_version")))
    return with_steps(parts, _answer(collection, history, single_statement))


def _answer(
    collection: Collection, history: HistoryEntry, single_statement: SingleStatement | None
) -> Fragment:
    if single_statement:
        return single_answer(single_statement)
    if not history.delta or collection.accountability != "all":
        revision = "NULL"
    elif history.only_when:
        # The id was drawn for every row, and only what has changed has a revision of that id.
        revision = f"CASE WHEN {history.only_when} THEN rows.revision END"
    else:
        revision = "rows.revision"
    number = optional("rows.n, ", when=history.action == "update")
    return fill("SELECT {0}rows.item, {1} FROM rows", number, text(revision))


def _returning(
    collection: Collection,
    single_statement: SingleStatement | None,
    event_columns: Sequence[Fragment],
) -> Fragment:
    """Print the columns that a written row (t0) returns: for history, events and the answer."""
    columns = [*history_columns(collection), *event_columns]
    if single_statement:
        columns.append(text("TRUE AS row_exists"))
        columns += numbered_outputs(single_statement.outputs)
        # system_require_rule raises an error, which undoes the write.
        if single_statement.after:
            columns.append(fill("system_require_rule({0})", single_statement.after))
        if single_statement.readable:
            columns.append(fill("coalesce({0}, FALSE) AS readable", single_statement.readable))
    return commas(columns)


def _advance_sequences(
    collection: Collection, columns: Iterable[tuple[int, Field]], arguments: ArgumentSlots
) -> list[Fragment]:
    """Print calls that move sequences past keys that were sent.

    They run once, before any row exists that another write's key could conflict with.
    """
    shape = "(SELECT system_advance_sequence({0}, {1}, {2}))"
    table = param(collection.name, "text")
    calls = []
    for index, field in columns:
        # The sequence would otherwise draw the same key later, and that insertion would fail.
        if field.has_sequence:
            keys = arguments.column_array(index, "bigint")
            calls.append(fill(shape, table, param(field.name, "text"), keys))
    return calls


def _and(conditions: list[Fragment]) -> Fragment:
    return join("", (concat(" AND ", condition) for condition in conditions))


# Values


def _source(columns: Sequence[Field], arguments: ArgumentSlots) -> Fragment:
    """Print the rows that were sent, as r (c0 …, n)."""
    # Rows without values are sent as their number: there is no column to unnest.
    if not columns and not arguments.single:
        return fill("generate_series(1, {0}) AS r (n)", arguments.row_count())
    values = [arguments.column(index, array_type(field)) for index, field in enumerate(columns)]
    if not arguments.single:
        return numbered_rows(values)
    # VALUES of one row lets PostgreSQL plan for one row; it guesses the rows of unnest.
    labels = "".join(f"c{index}, " for index in range(len(columns)))
    return fill("(VALUES ({0})) AS r ({1}n)", commas([*values, text("1")]), text(labels))


def _row_count(columns: Sequence[Field], arguments: ArgumentSlots) -> Fragment:
    """Print the number of rows that were sent."""
    if not columns:
        return arguments.row_count()
    return fill("cardinality({0})", arguments.column(0, array_type(columns[0])))


def _cell(field: Field, column: str) -> Fragment:
    assert field.column
    return text(field.type.write_sql.format(column, field.column.cast or field.type.cast))


# Writes in one statement: their conditions, and their answer


def single_answer(single_statement: SingleStatement) -> Fragment:
    """Print the answer: the counters, and beside them the written row, if there is one."""
    columns = output_columns("rows", len(single_statement.outputs))
    readable = optional(", rows.readable", when=single_statement.readable)
    seen = optional(", (SELECT old.seen FROM old)", when=single_statement.before)
    # The counters come in any case, and so there is a row even where none was written.
    shape = (
        "SELECT {0}, v.structure, v.access, v.flows, rows.row_exists{1}{2} "
        "FROM v LEFT JOIN rows ON TRUE{3}"
    )
    return fill(shape, columns, readable, seen, _whole(single_statement.sent))


def _whole(sent: Fragment | None) -> Fragment:
    """Print, behind the answer, that an insertion is given up if a trigger turns rows away."""
    if sent is None:
        return EMPTY
    # No row at all is that of a statement planned for another structure, which has left nothing.
    return fill(
        " WHERE (SELECT CASE WHEN count(*) IN (0, {0}) THEN TRUE "
        "ELSE system_refuse_missing_rows() END FROM rows)",
        sent,
    )


def rule_results(single_statement: SingleStatement | None) -> Fragment:
    """Print the results of the rules on a row as it was before the write."""
    if single_statement is None or single_statement.before is None:
        return EMPTY
    # A rule that compares with NULL is neither true nor false, and counts as not fulfilled.
    return fill(
        ", coalesce({0}, FALSE) AS seen, coalesce({1}, FALSE) AS writable",
        single_statement.before.seen,
        single_statement.before.writable,
    )


def write_allowed(single_statement: SingleStatement | None) -> Fragment:
    """Print, behind other conditions, that the caller may write the row."""
    if single_statement is None:
        return EMPTY
    return optional(" AND old.writable", when=single_statement.before)


def version_conditions(single_statement: SingleStatement | None) -> list[Fragment]:
    """Print the condition that the counters are still those under which the plan was made."""
    if single_statement is None:
        return []
    counters: list[Fragment] = []
    for number in range(VERSION_SLOTS):
        counters.append(param(Slot(single_statement.version + number), "bigint"))
    return [fill("(SELECT (v.structure, v.access, v.flows) = ({0}, {1}, {2}) FROM v)", *counters)]
