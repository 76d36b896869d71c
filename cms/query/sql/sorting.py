"""The printer of manual sorting: items change their positions and nothing else, with history."""

from __future__ import annotations

from cms.fragment import EMPTY, Fragment, commas, concat, fill, name, param, text
from cms.query.sql.arguments import key_cast
from cms.query.sql.columns import rows_of
from cms.query.sql.keys import is_kept_key, key_equals, key_order, key_outputs
from cms.query.sql.locks import row_lock
from cms.query.sql.write_history import (
    HistoryEntry,
    Step,
    delta_of,
    history_columns,
    history_steps,
    with_steps,
)
from cms.schema.model import Collection, Field


def position_of(collection: Collection, sort: Field, key: str) -> Fragment:
    """Print the read of an item's position; there is no row without the item."""
    return fill(
        "SELECT {2}::text FROM {0} WHERE {1}",
        rows_of(collection.name),
        key_equals(collection.key, "", _key_param(collection, key)),
        name(sort.name),
    )


def has_ambiguous_order(collection: Collection, sort: Field, low: str, high: str) -> Fragment:
    """Print the question whether items have no position, or share one between `low` and `high`."""
    shape = (
        "SELECT EXISTS (SELECT FROM {0} WHERE {1} IS NULL)"
        " OR (SELECT count(*) > count(DISTINCT {1}) FROM {0} WHERE {1} BETWEEN {2} AND {3})"
    )
    return fill(
        shape,
        rows_of(collection.name),
        name(sort.name),
        param(low, "bigint"),
        param(high, "bigint"),
    )


def renumber(collection: Collection, sort: Field, *, author: Fragment) -> Fragment:
    """Print the numbering of all items from 1; items without a position come last."""
    # The key decides between items without a position, or with the same one.
    key = collection.key
    ranked = fill(
        "SELECT {1}, row_number() OVER (ORDER BY {2}, {3}) AS n FROM {0}",
        name(collection.name),
        key_outputs(key),
        name(sort.name),
        key_order(key),
    )
    # Rows are locked in the order of their keys, as everywhere: otherwise writes might deadlock.
    old = fill(
        "SELECT {1}, t0.{2} AS w0, r.n AS position FROM {0} AS t0 JOIN ({3}) AS r ON {4}"
        " WHERE t0.{2} IS DISTINCT FROM r.n ORDER BY {5}{6}",
        name(collection.name),
        key_outputs(key, "t0"),
        name(sort.name),
        ranked,
        is_kept_key(key, "t0", "r"),
        key_order(key, "t0"),
        row_lock(collection, "NO KEY UPDATE OF t0"),
    )
    return _reposition(collection, sort, old, text("NULL::bigint"), author)


def move(
    collection: Collection, sort: Field, *, key: str, source: str, target: str, author: Fragment
) -> Fragment:
    """Print the move of an item from one position to another.

    Items between the two close up behind it; in the history they are part of the move.
    """
    # Moved from 2 to 5, the items at 3, 4 and 5 go up by one place (- 1); from 5 to 2, those at 2,
    # 3 and 4 go down (+ 1).
    down = int(source) < int(target)
    low, high = sorted((source, target), key=int)
    old = fill(
        "SELECT {1}, t0.{2} AS w0, CASE WHEN {3} THEN {4} ELSE t0.{2} {5} END AS "
        "position FROM {0} AS t0"
        " WHERE t0.{2} BETWEEN {6} AND {7} ORDER BY {8}{9}",
        name(collection.name),
        key_outputs(collection.key, "t0"),
        name(sort.name),
        key_equals(collection.key, "t0", _key_param(collection, key)),
        param(target, "bigint"),
        text("- 1" if down else "+ 1"),
        param(low, "bigint"),
        param(high, "bigint"),
        key_order(collection.key, "t0"),
        row_lock(collection),
    )
    shape = (
        "CASE WHEN moved.item <> {0}::text THEN (SELECT m.revision FROM moved AS m WHERE "
        "m.item = {0}::text) END"
    )
    # The other items name the revision of the moved one as their parent; its own has none.
    parent = text("NULL::bigint")
    if collection.accountability == "all":
        parent = fill(shape, _key_param(collection, key))
    return _reposition(collection, sort, old, parent, author)


def _reposition(
    collection: Collection, sort: Field, old: Fragment, parent: Fragment, author: Fragment
) -> Fragment:
    """Print the change of the rows of `old` to their positions, with its history."""
    # Two steps: the parent of a row may be the revision of another one that is moved with it.
    delta = EMPTY
    if collection.accountability == "all":
        delta = concat(", ", delta_of([sort]), " AS delta")
    moved = fill(
        "UPDATE {0} AS t0 SET {1} = old.position FROM old WHERE {2} RETURNING {3}{4}",
        name(collection.name),
        name(sort.name),
        is_kept_key(collection.key, "t0", "old"),
        commas(history_columns(collection)),
        delta,
    )
    rows = fill("SELECT moved.*, {0} AS parent FROM moved", parent)
    history = HistoryEntry.of_changes("update", nested=True)
    steps = [
        Step("old", old),
        Step("moved", moved),
        Step("rows", rows),
        *history_steps(collection, history, history_action=None, author=author),
    ]
    return with_steps(steps, text("SELECT count(*) FROM rows"))


def _key_param(collection: Collection, key: str) -> Fragment:
    return param(key, key_cast(collection.key))
