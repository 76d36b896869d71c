"""The printers of deletions that change or delete rows of other tables (ON DELETE), and of the history of these.

Rows that go with a deleted one are locked and written down; then the database deletes them as it would anyway. Rows
that lose what they point to are changed beforehand, which leaves the database nothing to do.
"""

from __future__ import annotations

from dataclasses import dataclass

from cms.fragment import EMPTY, Fragment, commas, concat, fill, join, name, text
from cms.query.recorded import History, delta_of, recorded, told, watched
from cms.query.write import Arguments, cast_of
from cms.schema.model import Collection, Field


@dataclass(frozen=True, slots=True)
class Reference:
    """How rows of a collection (t0) name those above them: by a column that holds the column `far` of these."""

    collection: Collection
    column: Field
    above: Collection
    far: str


def note_going(reference: Reference, arguments: Arguments, *, counted: bool = False) -> Fragment:
    """Print the lock and the history of rows that go with those above them, which come with their revisions.

    Its rows are their keys and revisions, that of the row above where there is none; `counted` only their number.
    The third argument are rows that have been written down already.
    """
    collection, key = reference.collection, name(reference.collection.key.name)
    rows = fill(
        "SELECT {0}, up.revision AS parent FROM {1}{2} ORDER BY t0.{3} FOR UPDATE OF t0",
        commas(recorded(collection)),
        name(collection.name),
        _above(reference, arguments),
        key,
    )
    history = History("delete", "NULL::json", nested=True)
    revision = "coalesce(rows.revision, rows.parent)" if collection.accountability == "all" else "rows.parent"
    answer = text("count(*)" if counted else f"rows.item, {revision}")
    return _statement(collection, arguments, [("rows", rows)], history, answer)


def unset(reference: Reference, arguments: Arguments, *, to_default: bool) -> Fragment:
    """Print the change of rows that lose what they point to, with its history; its row is their number.

    The third argument are rows that go as well, and are left alone.
    """
    collection, key = reference.collection, name(reference.collection.key.name)
    changing = watched(collection, [reference.column])
    old = fill(
        "SELECT t0.{0} AS k, up.revision AS parent{1} FROM {2}{3} ORDER BY t0.{0} FOR NO KEY UPDATE OF t0",
        key,
        join("", [concat(", t0.", name(field.name), f" AS w{n}") for n, field in enumerate(changing)]),
        name(collection.name),
        _above(reference, arguments),
    )
    has_revisions = collection.accountability == "all"
    rows = fill(
        "UPDATE {0} AS t0 SET {1} = {2} FROM old WHERE t0.{3} = old.k RETURNING {4}, old.parent{5}",
        name(collection.name),
        name(reference.column.name),
        text("DEFAULT" if to_default else "NULL"),
        key,
        commas(recorded(collection)),
        concat(", ", delta_of(changing), " AS delta") if has_revisions else EMPTY,
    )
    history = History("update", "rows.delta", only_when="rows.delta IS NOT NULL", nested=True)
    return _statement(collection, arguments, [("old", old), ("rows", rows)], history, text("count(*)"))


def remove(collection: Collection, arguments: Arguments) -> Fragment:
    """Print the deletion of rows that have been written down; its row is their number."""
    return fill(
        "WITH rows AS (DELETE FROM {0} AS t0 WHERE t0.{1} = ANY ({2}) RETURNING 1) SELECT count(*) FROM rows",
        name(collection.name),
        name(collection.key.name),
        arguments.column(0, cast_of(collection.key)),
    )


def _above(reference: Reference, arguments: Arguments) -> Fragment:
    """Print the rows above (up), how rows are tied to them, and which rows are left out."""
    above, column = reference.above, name(reference.column.name)
    keys = fill(
        "unnest({0}, {1}) AS up (key, revision)",
        arguments.column(0, cast_of(above.key)),
        arguments.column(1, "bigint"),
    )
    if reference.far == above.primary_key:
        tie = fill(" AS t0 JOIN {0} ON t0.{1} = up.key", keys, column)
    else:
        shape = " AS t0 JOIN {0} AS above ON t0.{1} = above.{2} JOIN {3} ON above.{4} = up.key"
        tie = fill(shape, name(above.name), column, name(reference.far), keys, name(above.key.name))
    key = reference.collection.key
    # Looked up in a hash table: `<> ALL` goes through all of them for each row, which takes hours for many.
    left_out = fill(" WHERE t0.{0} NOT IN (SELECT unnest({1}))", name(key.name), arguments.column(2, cast_of(key)))
    return concat(tie, left_out)


def _statement(
    collection: Collection, arguments: Arguments, steps: list[tuple[str, Fragment]], history: History, answer: Fragment
) -> Fragment:
    parts = [*steps, *told(collection, history, act=None, author=arguments.author())]
    queries = commas(fill("{0} AS ({1})", text(label), step) for label, step in parts)
    return fill("WITH {0} SELECT {1} FROM rows", queries, answer)
