"""The printers of deletions that change or delete rows of other tables (ON DELETE), with history.

Rows that are deleted along are locked and recorded in the history; then the database deletes them
as it would anyway. The foreign keys of rows that stay are changed beforehand, so that the database
has no more to do.

Rows are identified by row ids: the primary key as text, or in a table without one the physical
location (ctid) of the row, which does not change while the row is locked.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from cms.fragment import EMPTY, Fragment, commas, concat, fill, join, name, quoted, text
from cms.query.sql.arguments import ArgumentSlots, key_cast
from cms.query.sql.columns import rows_of
from cms.query.sql.keys import key_columns, key_equals, key_is_any, key_order, key_text
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

    `key` is None in a table without a primary key. `collection` is the collection
    whose history records the rows, if any.
    """

    table: Table
    columns: tuple[str, ...]
    key: Field | None
    collection: Collection | None = None

    @property
    def names_items(self) -> bool:
        """Whether row ids are the keys by which the history names items."""
        # A collection may have another key than the table's primary key.
        if self.key is None or self.collection is None:
            return False
        return tuple(part.name for part in self.key.key_fields) == self.collection.key_names

    @property
    def has_revisions(self) -> bool:
        return self.collection is not None and self.collection.accountability == "all"


@dataclass(frozen=True, slots=True)
class RowReference:
    """How rows (t0) point to the rows above them.

    Without `parent` the arguments are keys of the rows themselves.
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
    columns = []
    if own.collection:
        columns += history_columns(own.collection)
    if not own.names_items:
        columns.append(concat(_row_id(own.key), " AS row_id"))
    # Locked in one order, so that two deletions do not wait for each other.
    rows = fill(
        "SELECT {0}, up.revision AS parent FROM {1}{2} ORDER BY {3} FOR UPDATE OF t0",
        commas(columns),
        _table(own.table),
        _joined_parents(reference, arguments),
        commas(_identity("t0", own.key)),
    )
    history = HistoryEntry("delete", "NULL::json", nested=True)
    answer = text("count(*)") if count_only else _recorded_columns(reference)
    return _statement(own, arguments, [Step("rows", rows)], history, answer)


def _recorded_columns(reference: RowReference) -> Fragment:
    """Print row ids and revisions of recorded rows, and their keys in the history."""
    own = reference.own
    columns = []
    if own.names_items:
        columns.append(text("rows.item"))
    else:
        columns.append(text("rows.row_id"))
    # Rows that are deleted along with these are nested in their revision; a table without revisions
    # passes on that of the row above.
    if own.has_revisions:
        columns.append(text("coalesce(rows.revision, rows.parent)"))
    else:
        columns.append(text("rows.parent"))
    if reference.parent is None:
        columns.append(text("rows.item"))
    return commas(columns)


def clear_references(
    reference: RowReference, arguments: ArgumentSlots, *, changed: Sequence[str], to_default: bool
) -> Fragment:
    """Print the change of rows whose foreign key points to deleted rows, with its history.

    The answer is their number. The third argument is the ids of rows that are deleted as well,
    which are left alone.
    """
    own = reference.own
    collection = own.collection
    assert collection, "rows without a history are left to the database"
    written = [field for field in collection.columns if field.name in changed]
    changing = tracked_columns(collection, written)
    value = " = DEFAULT" if to_default else " = NULL"
    delta = EMPTY
    if own.has_revisions:
        delta = concat(", ", delta_of(changing), " AS delta")
    rows = fill(
        "UPDATE {0} AS t0 SET {1} FROM old WHERE {2} RETURNING {3}, old.parent{4}",
        _table(own.table),
        commas(concat(name(column), value) for column in changed),
        _is_old_row(own.key),
        commas(history_columns(collection)),
        delta,
    )
    history = HistoryEntry.of_changes("update", nested=True)
    # Old values are locked and read first: the history compares them with the new ones.
    steps = [Step("old", _rows_before(reference, arguments, changing)), Step("rows", rows)]
    return _statement(own, arguments, steps, history, text("count(*)"))


def _rows_before(
    reference: RowReference, arguments: ArgumentSlots, changing: Sequence[Field]
) -> Fragment:
    """Print rows before their change, locked: what identifies them, and values of `changing`."""
    own = reference.own
    identity = _identity("t0", own.key)
    columns = [concat(column, f" AS k{number}") for number, column in enumerate(identity)]
    columns.append(text("up.revision AS parent"))
    for number, field in enumerate(changing):
        columns.append(concat("t0.", name(field.name), f" AS w{number}"))
    return fill(
        "SELECT {0} FROM {1}{2} ORDER BY {3} FOR NO KEY UPDATE OF t0",
        commas(columns),
        _table(own.table),
        _joined_parents(reference, arguments),
        commas(identity),
    )


def _is_old_row(key: Field | None) -> Fragment:
    tests = []
    for number, column in enumerate(_identity("t0", key)):
        tests.append(concat(column, f" = old.k{number}"))
    return join(" AND ", tests)


def delete_recorded(collection: Collection, arguments: ArgumentSlots) -> Fragment:
    """Print the deletion of rows that the history has recorded; its answer is their number."""
    keys = arguments.column(0, key_cast(collection.key))
    return fill(
        "WITH rows AS (DELETE FROM {0} AS t0 WHERE {1} RETURNING 1) SELECT count(*) FROM rows",
        rows_of(collection.name),
        key_is_any(collection.key, "t0", keys),
    )


def _table(table: Table) -> Fragment:
    sql = quoted(table.name)
    if table.schema:
        sql = f"{quoted(table.schema)}.{sql}"
    if table.only:
        sql = f"ONLY {sql}"
    return text(sql)


def _identity(label: str, key: Field | None) -> list[Fragment]:
    """Print the columns that identify a row."""
    if key is None:
        return [text(f"{label}.tableoid"), text(f"{label}.ctid")]
    return key_columns(key, label)


def _row_id(key: Field | None) -> Fragment:
    # The same location exists in every partition and heir of a table.
    if key is None:
        return text("concat(t0.tableoid, ' ', t0.ctid)")
    return key_text(key, "t0")


def _cast(key: Field | None) -> str:
    if key is None:
        return "text"
    return key_cast(key)


def _joined_parents(reference: RowReference, arguments: ArgumentSlots) -> Fragment:
    """Print the rows above (up), the join with them, and which rows are left out."""
    own = reference.own
    parent = reference.parent
    above_key = parent.key if parent else own.key
    # A collection may have another key than the table's primary key.
    if parent is None and own.collection:
        above_key = own.collection.key
    keys = fill(
        "unnest({0}, {1}) AS up (key, revision)",
        arguments.column(0, _cast(above_key)),
        arguments.column(1, "bigint"),
    )
    if parent is None:
        assert above_key, "only items are deleted"
        joined = fill(" AS t0 JOIN {0} ON {1}", keys, key_equals(above_key, "t0", text("up.key")))
    # The usual case: the foreign key points to the primary key, which is the row id that is known.
    elif parent.key and parent.columns == (parent.key.name,):
        joined = fill(" AS t0 JOIN {0} ON t0.{1} = up.key", keys, name(own.columns[0]))
    else:
        # The foreign key points to other columns than those that identify the rows above.
        are_equal = []
        for near, far in zip(own.columns, parent.columns, strict=True):
            are_equal.append(fill("t0.{0} = above.{1}", name(near), name(far)))
        joined = fill(
            " AS t0 JOIN {0} AS above ON {1} JOIN {2} ON {3}",
            _table(parent.table),
            join(" AND ", are_equal),
            keys,
            _has_row_id(parent.key),
        )
    return concat(joined, _not_left_out(own, arguments))


def _not_left_out(own: KeySide, arguments: ArgumentSlots) -> Fragment:
    """Print that a row is none of those of the third argument."""
    row_id = _row_id(own.key) if own.key is None or own.key.parts else key_order(own.key, "t0")
    # NOT IN looks values up in a hash table; `<> ALL` would compare each row with all of them,
    # which takes hours for many.
    return fill(
        " WHERE {0} NOT IN (SELECT unnest({1}))", row_id, arguments.column(2, _cast(own.key))
    )


def _has_row_id(key: Field | None) -> Fragment:
    """Print the condition that a row above has the row id of `up`."""
    if key is not None:
        return key_equals(key, "above", text("up.key"))
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
    # Rows of a table that is no collection have no history.
    if own.collection:
        author = arguments.author()
        steps = [
            *steps,
            *history_steps(own.collection, history, history_action=None, author=author),
        ]
    return with_steps(steps, fill("SELECT {0} FROM rows", answer))
