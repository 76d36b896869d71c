"""The printers of deletions that change or delete rows of other tables (ON DELETE), with history.

Rows that go with a deleted one are locked and recorded in the history; then the database deletes
them as it would anyway. Rows that lose what they point to are changed beforehand, so that nothing
is left for the database to do.

Rows are identified by row ids: the primary key as text, or in a table without a primary key of one
column the physical place of the row, which does not change while the row is locked.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from cms.fragment import EMPTY, Fragment, commas, concat, fill, join, name, quoted, text
from cms.query.sql.arguments import ArgumentSlots, key_cast
from cms.query.sql.write_history import (
    HistoryEntry,
    Step,
    delta_of,
    history_columns,
    history_steps,
    tracked_columns,
    with_steps,
)
from cms.schema.model import Collection, Field
from cms.schema.referential_actions import Table


@dataclass(frozen=True, slots=True)
class KeySide:
    """One side of a foreign key: a table, its columns in the key, and its primary key.

    `key` is None in a table without a primary key of one column. `collection` is the collection
    whose history records the rows, if any.
    """

    table: Table
    columns: tuple[str, ...]
    key: Field | None
    collection: Collection | None = None


@dataclass(frozen=True, slots=True)
class RowReference:
    """How rows (t0) point to the rows above them.

    Without `parent` the arguments are values of a column of the rows themselves.
    """

    own: KeySide
    parent: KeySide | None = None


def record_deleted(
    reference: RowReference, arguments: ArgumentSlots, *, count_only: bool = False
) -> Fragment:
    """Print the lock and the history of rows that go with the rows above them.

    The arguments are the row ids above, their revisions, and the ids of rows that have been
    recorded already. The answer holds row ids and revisions, the revision of the row above where
    there is none, and without `parent` the keys, too; with `count_only` it is the number of rows.
    """
    own = reference.own
    columns = history_columns(own.collection) if own.collection else []
    # The history names rows by the collection's key, which need not be the table's primary key.
    is_item = (
        own.key is not None
        and own.collection is not None
        and own.key.name == own.collection.primary_key
    )
    if not is_item:
        columns.append(concat(_row_id(own.key), " AS row_id"))
    # Locked in one order, so that two deletions do not wait for each other.
    rows = fill(
        "SELECT {0}, up.revision AS parent FROM {1}{2} ORDER BY {3} FOR UPDATE OF t0",
        commas(columns),
        _table(own.table),
        _joined_parents(reference, arguments),
        commas(_identity("t0", own.key)),
    )
    has_revisions = own.collection is not None and own.collection.accountability == "all"
    answer = [
        text("rows.item" if is_item else "rows.row_id"),
        # What goes with these rows is nested in their revision; a table without revisions passes on
        # that of the row above.
        text("coalesce(rows.revision, rows.parent)" if has_revisions else "rows.parent"),
    ]
    if reference.parent is None:
        answer.append(text("rows.item"))
    history = HistoryEntry("delete", "NULL::json", nested=True)
    return _statement(
        own,
        arguments,
        [Step("rows", rows)],
        history,
        text("count(*)") if count_only else commas(answer),
    )


def clear_references(
    reference: RowReference, arguments: ArgumentSlots, *, changed: Sequence[str], to_default: bool
) -> Fragment:
    """Print the change of rows that lose what they point to, with its history.

    The answer is their number. The third argument is the ids of rows that are deleted as well,
    which are left alone.
    """
    own = reference.own
    collection = own.collection
    assert collection, "rows without a history are left to the database"
    changing = tracked_columns(
        collection, [field for field in collection.columns if field.name in changed]
    )
    # Old values are locked and read first: the history compares them with the new ones.
    identity = _identity("t0", own.key)
    old_values = []
    for n, field in enumerate(changing):
        old_values.append(concat(", t0.", name(field.name), f" AS w{n}"))
    old = fill(
        "SELECT {0}, up.revision AS parent{1} FROM {2}{3} ORDER BY {4} FOR NO KEY UPDATE OF t0",
        commas(concat(column, f" AS k{n}") for n, column in enumerate(identity)),
        join("", old_values),
        _table(own.table),
        _joined_parents(reference, arguments),
        commas(identity),
    )
    has_revisions = collection.accountability == "all"
    value = text(" = DEFAULT" if to_default else " = NULL")
    rows = fill(
        "UPDATE {0} AS t0 SET {1} FROM old WHERE {2} RETURNING {3}, old.parent{4}",
        _table(own.table),
        commas(concat(name(column), value) for column in changed),
        join(" AND ", [concat(column, f" = old.k{n}") for n, column in enumerate(identity)]),
        commas(history_columns(collection)),
        concat(", ", delta_of(changing), " AS delta") if has_revisions else EMPTY,
    )
    history = HistoryEntry("update", "rows.delta", only_when="rows.delta IS NOT NULL", nested=True)
    return _statement(
        own, arguments, [Step("old", old), Step("rows", rows)], history, text("count(*)")
    )


def delete_recorded(collection: Collection, arguments: ArgumentSlots) -> Fragment:
    """Print the deletion of rows that the history has recorded; its answer is their number."""
    return fill(
        "WITH rows AS (DELETE FROM {0} AS t0 WHERE t0.{1} = ANY ({2}) RETURNING 1) SELECT "
        "count(*) FROM rows",
        name(collection.name),
        name(collection.key.name),
        arguments.column(0, key_cast(collection.key)),
    )


def _table(table: Table) -> Fragment:
    only = "ONLY " if table.only else ""
    schema = f"{quoted(table.schema)}." if table.schema else ""
    return text(f"{only}{schema}{quoted(table.name)}")


def _identity(label: str, key: Field | None) -> list[Fragment]:
    """Print the columns that identify a row."""
    columns = ["tableoid", "ctid"] if key is None else [quoted(key.name)]
    return [text(f"{label}.{column}") for column in columns]


def _row_id(key: Field | None) -> Fragment:
    # The same place exists in every partition and heir of a table.
    if key is None:
        return text("concat(t0.tableoid, ' ', t0.ctid)")
    return text(f"t0.{quoted(key.name)}::text")


def _cast(key: Field | None) -> str:
    return "text" if key is None else key_cast(key)


def _joined_parents(reference: RowReference, arguments: ArgumentSlots) -> Fragment:
    """Print the rows above (up), the join with them, and which rows are left out."""
    own = reference.own
    parent = reference.parent
    above_key = parent.key if parent else own.key
    # Without a parent the arguments are values of a column that need not be the primary key.
    if parent is None and own.collection:
        above_key = own.collection.fields[own.columns[0]]
    keys = fill(
        "unnest({0}, {1}) AS up (key, revision)",
        arguments.column(0, _cast(above_key)),
        arguments.column(1, "bigint"),
    )
    # The usual case: the foreign key points to the primary key, which is the row id that is known.
    if parent is None or (parent.key and parent.columns == (parent.key.name,)):
        joined = fill(" AS t0 JOIN {0} ON t0.{1} = up.key", keys, name(own.columns[0]))
    else:
        # The foreign key points to other columns than those that identify the rows above.
        pairs = zip(own.columns, parent.columns, strict=True)
        columns = [fill("t0.{0} = above.{1}", name(near), name(far)) for near, far in pairs]
        joined = fill(
            " AS t0 JOIN {0} AS above ON {1} JOIN {2} ON {3}",
            _table(parent.table),
            join(" AND ", columns),
            keys,
            _has_row_id(parent.key),
        )
    # NOT IN looks values up in a hash table; `<> ALL` would compare each row with all of them,
    # which takes hours for many.
    row_id = _row_id(None) if own.key is None else fill("t0.{0}", name(own.key.name))
    left_out = fill(
        " WHERE {0} NOT IN (SELECT unnest({1}))", row_id, arguments.column(2, _cast(own.key))
    )
    return concat(joined, left_out)


def _has_row_id(key: Field | None) -> Fragment:
    """Print the condition that a row above has the row id of `up`."""
    if key is not None:
        return fill("above.{0} = up.key", name(key.name))
    return text(
        "above.tableoid = split_part(up.key, ' ', 1)::oid"
        " AND above.ctid = split_part(up.key, ' ', 2)::tid"
    )


def _statement(
    own: KeySide,
    arguments: ArgumentSlots,
    steps: list[Step],
    history: HistoryEntry,
    answer: Fragment,
) -> Fragment:
    if own.collection:
        author = arguments.author()
        steps = [
            *steps,
            *history_steps(own.collection, history, history_action=None, author=author),
        ]
    return with_steps(steps, fill("SELECT {0} FROM rows", answer))
