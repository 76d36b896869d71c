"""The printers of locks, and of reads by writes: keys, which rules items fulfil, contents."""

from __future__ import annotations

from collections.abc import Sequence

from cms.fragment import EMPTY, Fragment, commas, fill, name, param, text
from cms.query.plan.read_plan import Predicate
from cms.query.sql.arguments import ArgumentSlots, array, key_cast
from cms.query.sql.columns import rows_of
from cms.query.sql.expressions import predicate
from cms.query.sql.keys import (
    compared_columns,
    key_equals,
    key_is_any,
    key_is_in,
    key_order,
    key_text,
)
from cms.query.sql.write_history import whole_row
from cms.schema.model import Collection, Field, Kind

_LOCK = "SELECT {0} FROM {1} AS t WHERE {2} ORDER BY {3} FOR NO KEY UPDATE"


def row_lock(collection: Collection, strength: str = "NO KEY UPDATE") -> Fragment:
    """Print the lock of selected rows; nothing for views, whose writes take turns instead.

    PostgreSQL locks no row of a view that groups, unites or joins, and of others the rows of all
    tables beneath, for which its owner needs more rights.
    """
    # NO KEY UPDATE lets other transactions insert rows that point to these.
    if collection.kind is Kind.VIEW:
        return EMPTY
    return text(f" FOR {strength}")


def lock_by_key(collection: Collection, arguments: ArgumentSlots) -> Fragment:
    """Print the lock of rows in the order of their keys.

    The one order keeps writes of several statements from deadlocks.
    """
    return fill(
        _LOCK,
        key_text(collection.key, "t"),
        name(collection.name),
        key_is_any(collection.key, "t", _keys(collection, arguments)),
        key_order(collection.key, "t"),
    )


def _keys(collection: Collection, arguments: ArgumentSlots, index: int = 0) -> Fragment:
    return arguments.column(index, key_cast(collection.key))


def lock_list(collection: Collection, far: Field, arguments: ArgumentSlots) -> Fragment:
    """Print the lock of rows by key, and of rows whose field `far` holds one of the values.

    The first argument is the keys, the second the values of `far`.
    """
    # One statement for both kinds of rows: two statements would lock in two orders. Not OR, which
    # compares every row with every key where `far` has no index.
    key = collection.key
    both = fill(
        "SELECT {0} FROM {1} AS k WHERE {2} UNION ALL SELECT {3} FROM {1} AS l WHERE {4}",
        commas(compared_columns(key, "k")),
        name(collection.name),
        key_is_any(key, "k", _keys(collection, arguments)),
        commas(compared_columns(key, "l")),
        key_is_any(far, "l", arguments.column(1, key_cast(far))),
    )
    return fill(
        _LOCK,
        key_text(key, "t"),
        name(collection.name),
        key_is_in(key, "t", both),
        key_order(key, "t"),
    )


def column_by_key(
    collection: Collection, column: Field, arguments: ArgumentSlots, cast: str
) -> Fragment:
    """Print the read of one column of rows by key; its rows are key and value, as text.

    The text is that of the value as the type `cast`; that of a key of several columns has none.
    """
    value = key_text(column, "t")
    if not column.parts:
        value = fill("{0}::{1}::text", key_order(column, "t"), text(cast))
    return fill(
        "SELECT {0}, {1} FROM {2} AS t WHERE {3}",
        key_text(collection.key, "t"),
        value,
        rows_of(collection.name),
        key_is_any(collection.key, "t", _keys(collection, arguments)),
    )


def stored_keys(collection: Collection, arguments: ArgumentSlots) -> Fragment:
    """Print the read of keys as they are stored; its rows are a key as sent and as stored."""
    # One type may write a value in several ways, such as 1 and 1.00. Not `unnest` of both arrays in
    # one call, which would take the values of a composite type apart.
    return fill(
        "SELECT sent.key, {0} FROM (SELECT unnest({2}) AS key, unnest({3}) AS value) AS sent "
        "JOIN {1} AS t ON {4}",
        key_text(collection.key, "t"),
        rows_of(collection.name),
        arguments.column(0, "text"),
        _keys(collection, arguments, 1),
        key_equals(collection.key, "t", text("sent.value")),
    )


def list_values(collection: Collection, far: Field, arguments: ArgumentSlots) -> Fragment:
    """Print the read of which value rows hold in a column; its rows are a key and that value.

    The first argument is the keys, the second the values, of which each row's is told as it came.
    """
    return fill(
        "SELECT {0}, named.value "
        "FROM (SELECT unnest({4}) AS value, unnest({5}) AS stored) AS named "
        "JOIN {1} AS t ON {2} WHERE {3}",
        key_text(collection.key, "t"),
        rows_of(collection.name),
        key_equals(far, "t", text("named.stored")),
        key_is_any(collection.key, "t", _keys(collection, arguments)),
        arguments.column(1, "text"),
        arguments.column(2, key_cast(far)),
    )


def history_key(collection: Collection, key: str) -> Fragment:
    """Print the read of a key as history names its item, which may be stored no more."""
    # As it is stored, where it is: a decimal key may be written 1 and 1.00.
    value = param(key, key_cast(collection.key))
    return fill(
        "SELECT coalesce((SELECT {0} FROM {1} AS t WHERE {2}), {3}::text)",
        key_text(collection.key, "t"),
        rows_of(collection.name),
        key_equals(collection.key, "t", value),
        value,
    )


def last_key(collection: Collection) -> Fragment:
    """Print the read of the largest key, as text."""
    return fill(
        "SELECT max({0})::text FROM {1}", name(collection.key.name), rows_of(collection.name)
    )


def singleton_key(collection: Collection) -> Fragment:
    """Print the read of the key of a singleton's row."""
    return fill(
        "SELECT {1} FROM {0} ORDER BY {2} LIMIT 1",
        rows_of(collection.name),
        key_text(collection.key),
        key_order(collection.key),
    )


def lock_row(collection: Collection, key: str) -> Fragment:
    """Print the lock of one row, for the transaction."""
    is_row = key_equals(collection.key, "", param(key, key_cast(collection.key)))
    lock = row_lock(collection, "UPDATE")
    return fill("SELECT FROM {0} WHERE {1}{2}", name(collection.name), is_row, lock)


def lock_collection(collection: Collection) -> Fragment:
    """Print the lock under which writes take turns where there is no row to lock.

    A singleton gets its one row under it, a view is written, and manual order changes.
    """
    return fill(
        # Other locks hash with another seed: no name of a collection can be one of theirs.
        "SELECT pg_advisory_xact_lock(hashtextextended(current_schema() || ' ' || {0}, 1))",
        param(collection.name, "text"),
    )


def check_rows(
    collection: Collection, keys: Sequence[str], rules: Sequence[Predicate], *, lock: bool = False
) -> Fragment:
    """Print the question which rules items fulfil; its rows are a key and a boolean for each rule.

    Items that do not exist have no row. With `lock` items cannot change until the transaction ends;
    they are locked in the order of their keys, which prevents deadlocks.
    """
    key = collection.key
    answers = [key_text(key, "t0")]
    for rule in rules:
        # A rule that is NULL for a row, such as a comparison with NULL, does not hold.
        answers.append(fill("coalesce({0}, FALSE)", predicate(rule, 0)))
    return fill(
        "SELECT {0} FROM {1} AS t0 WHERE {2} ORDER BY {3}{4}",
        commas(answers),
        rows_of(collection.name),
        key_is_any(key, "t0", param(list(keys), f"{key_cast(key)}[]")),
        key_order(key, "t0"),
        row_lock(collection, "UPDATE") if lock else EMPTY,
    )


def item_contents(collection: Collection, keys: Sequence[str], *, masks: bool = True) -> Fragment:
    """Print the read of the contents of items; its rows are a key and the item as JSON.

    Items are locked in the order of their keys. Secrets are masked, or left out without `masks`.
    """
    key = collection.key
    return fill(
        "SELECT {0}, {1}::text FROM {2} AS t0 WHERE {3} ORDER BY {4}{5}",
        key_text(key, "t0"),
        whole_row(collection, masks=masks),
        rows_of(collection.name),
        key_is_any(key, "t0", param(array(keys), f"{key_cast(key)}[]")),
        key_order(key, "t0"),
        row_lock(collection),
    )
