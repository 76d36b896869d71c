"""The printers of deletions that change or delete rows of other tables (ON DELETE), and of the history of these.

Rows that go with a deleted one are locked and written down; then the database deletes them as it would anyway. Rows
that lose what they point to are changed beforehand, which leaves the database nothing to do.

Rows are told apart by their marks: the primary key as text or, where a table has none of one column, where the row
lies, which stays while the row is locked.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from cms.fragment import EMPTY, Fragment, commas, concat, fill, join, name, quoted, text
from cms.query.sql.history import (
    HistoryEntry,
    delta_of,
    history_columns,
    history_steps,
    tracked_columns,
)
from cms.query.sql.write import ArgumentSlots, key_cast
from cms.schema.model import Collection, Field
from cms.schema.referential_actions import Table


@dataclass(frozen=True, slots=True)
class KeySide:
    """One side of a foreign key: a table and columns of it, and its primary key, None where it has none of one column.

    `collection` is that in whose history the rows are, if any.
    """

    table: Table
    columns: tuple[str, ...]
    key: Field | None
    collection: Collection | None = None


@dataclass(frozen=True, slots=True)
class RowReference:
    """How rows (t0) name those above them; without `parent` one of their own columns names the rows themselves."""

    own: KeySide
    parent: KeySide | None = None


def record_deleted(
    reference: RowReference, arguments: ArgumentSlots, *, count_only: bool = False
) -> Fragment:
    """Print the lock and the history of rows that go with those above them, which come with their revisions.

    Its rows are their marks and revisions, that of the row above where there is none, and, of rows that are named
    themselves, their keys; `count_only` only their number. The third argument are rows that were written down already.
    """
    own = reference.own
    is_item = (
        own.key is not None
        and own.collection is not None
        and own.key.name == own.collection.primary_key
    )
    shown = history_columns(own.collection) if own.collection else []
    rows = fill(
        "SELECT {0}, up.revision AS parent FROM {1}{2} ORDER BY {3} FOR UPDATE OF t0",
        commas(shown if is_item else [*shown, concat(_row_id(own.key), " AS mark")]),
        _table(own.table),
        _joined_parents(reference, arguments),
        commas(_identity("t0", own.key)),
    )
    has_revisions = own.collection is not None and own.collection.accountability == "all"
    answer = [
        text("rows.item" if is_item else "rows.mark"),
        text("coalesce(rows.revision, rows.parent)" if has_revisions else "rows.parent"),
        *([] if reference.parent else [text("rows.item")]),
    ]
    history = HistoryEntry("delete", "NULL::json", nested=True)
    return _statement(
        own,
        arguments,
        [("rows", rows)],
        history,
        text("count(*)") if count_only else commas(answer),
    )


def clear_references(
    reference: RowReference, arguments: ArgumentSlots, *, changed: Sequence[str], to_default: bool
) -> Fragment:
    """Print the change of rows that lose what they point to, with its history; its row is their number.

    The third argument are rows that go as well, and are left alone.
    """
    own, collection = reference.own, reference.own.collection
    assert collection, "rows without a history are left to the database"
    changing = tracked_columns(
        collection, [field for field in collection.columns if field.name in changed]
    )
    identity = _identity("t0", own.key)
    old = fill(
        "SELECT {0}, up.revision AS parent{1} FROM {2}{3} ORDER BY {4} FOR NO KEY UPDATE OF t0",
        commas(concat(column, f" AS k{n}") for n, column in enumerate(identity)),
        join(
            "", [concat(", t0.", name(field.name), f" AS w{n}") for n, field in enumerate(changing)]
        ),
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
    return _statement(own, arguments, [("old", old), ("rows", rows)], history, text("count(*)"))


def delete_recorded(collection: Collection, arguments: ArgumentSlots) -> Fragment:
    """Print the deletion of rows that have been written down; its row is their number."""
    return fill(
        "WITH rows AS (DELETE FROM {0} AS t0 WHERE t0.{1} = ANY ({2}) RETURNING 1) SELECT count(*) FROM rows",
        name(collection.name),
        name(collection.key.name),
        arguments.column(0, key_cast(collection.key)),
    )


def _table(table: Table) -> Fragment:
    schema = f"{quoted(table.schema)}." if table.schema else ""
    return text(f"{'ONLY ' if table.only else ''}{schema}{quoted(table.name)}")


def _identity(label: str, key: Field | None) -> list[Fragment]:
    """Print what tells rows apart."""
    columns = ["tableoid", "ctid"] if key is None else [quoted(key.name)]
    return [text(f"{label}.{column}") for column in columns]


def _row_id(key: Field | None) -> Fragment:
    return text(
        "concat(t0.tableoid, ' ', t0.ctid)" if key is None else f"t0.{quoted(key.name)}::text"
    )


def _cast(key: Field | None) -> str:
    return "text" if key is None else key_cast(key)


def _joined_parents(reference: RowReference, arguments: ArgumentSlots) -> Fragment:
    """Print the rows above (up), how rows are tied to them, and which rows are left out."""
    own, parent = reference.own, reference.parent
    named = parent.key if parent else own.key
    if parent is None and own.collection:  # named by its items' key, which may be another one
        named = own.collection.fields[own.columns[0]]
    keys = fill(
        "unnest({0}, {1}) AS up (key, revision)",
        arguments.column(0, _cast(named)),
        arguments.column(1, "bigint"),
    )
    if parent is None or (parent.key and parent.columns == (parent.key.name,)):
        tie = fill(" AS t0 JOIN {0} ON t0.{1} = up.key", keys, name(own.columns[0]))
    else:
        shape = " AS t0 JOIN {0} AS above ON {1} JOIN {2} ON {3}"
        pairs = zip(own.columns, parent.columns, strict=True)
        columns = [fill("t0.{0} = above.{1}", name(near), name(far)) for near, far in pairs]
        tie = fill(
            shape, _table(parent.table), join(" AND ", columns), keys, _has_row_id(parent.key)
        )
    # Looked up in a hash table: `<> ALL` goes through all of them for each row, which takes hours for many.
    mark = _row_id(None) if own.key is None else fill("t0.{0}", name(own.key.name))
    left_out = fill(
        " WHERE {0} NOT IN (SELECT unnest({1}))", mark, arguments.column(2, _cast(own.key))
    )
    return concat(tie, left_out)


def _has_row_id(key: Field | None) -> Fragment:
    """Print whether a row above is the one of a mark."""
    if key is not None:
        return fill("above.{0} = up.key", name(key.name))
    parts = "above.tableoid = split_part(up.key, ' ', 1)::oid AND above.ctid = split_part(up.key, ' ', 2)::tid"
    return text(parts)


def _statement(
    own: KeySide,
    arguments: ArgumentSlots,
    steps: list[tuple[str, Fragment]],
    history: HistoryEntry,
    answer: Fragment,
) -> Fragment:
    author = arguments.author()
    parts = [
        *steps,
        *(
            history_steps(own.collection, history, history_action=None, author=author)
            if own.collection
            else ()
        ),
    ]
    queries = commas(fill("{0} AS ({1})", text(label), step) for label, step in parts)
    return fill("WITH {0} SELECT {1} FROM rows", queries, answer)
