"""The printers of locks, and of reads by writes: keys, which rules items fulfil, contents."""

from __future__ import annotations

from collections.abc import Sequence

from cms.fragment import EMPTY, Fragment, commas, fill, name, param, text
from cms.query.plan.read_plan import Predicate
from cms.query.sql.arguments import ArgumentSlots, array, key_cast
from cms.query.sql.columns import rows_of
from cms.query.sql.expressions import predicate
from cms.query.sql.write_history import whole_row
from cms.schema.model import Collection, Kind


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
        "SELECT t.{0}::text FROM {1} AS t WHERE t.{0} = ANY ({2}) ORDER BY t.{0} FOR NO KEY UPDATE",
        name(collection.key.name),
        name(collection.name),
        arguments.column(0, key_cast(collection.key)),
    )


def lock_list(collection: Collection, far: str, arguments: ArgumentSlots) -> Fragment:
    """Print the lock of rows by key, and of rows whose column `far` holds one of the values.

    The first argument is the keys, the second the values of `far`.
    """
    # One statement for both kinds of rows: two statements would lock in two orders. Not OR, which
    # compares every row with every key where `far` has no index.
    return fill(
        "SELECT t.{0}::text FROM {1} AS t WHERE t.{0} = ANY (ARRAY("
        "SELECT k.{0} FROM {1} AS k WHERE k.{0} = ANY ({2}) "
        "UNION ALL SELECT l.{0} FROM {1} AS l WHERE l.{3} = ANY ({4}))) "
        "ORDER BY t.{0} FOR NO KEY UPDATE",
        name(collection.key.name),
        name(collection.name),
        arguments.column(0, key_cast(collection.key)),
        name(far),
        arguments.column(1, key_cast(collection.fields[far])),
    )


def column_by_key(
    collection: Collection, column: str, arguments: ArgumentSlots, cast: str
) -> Fragment:
    """Print the read of one column of rows by key; its rows are key and value, as text.

    The text is that of the value as the type `cast`.
    """
    return fill(
        "SELECT t.{0}::text, t.{1}::{4}::text FROM {2} AS t WHERE t.{0} = ANY ({3})",
        name(collection.key.name),
        name(column),
        rows_of(collection.name),
        arguments.column(0, key_cast(collection.key)),
        text(cast),
    )


def stored_keys(collection: Collection, arguments: ArgumentSlots) -> Fragment:
    """Print the read of keys as they are stored; its rows are a key as sent and as stored."""
    # One type may write a value in several ways, such as 1 and 1.00. Not `unnest` of both arrays in
    # one call, which would take the values of a composite type apart.
    return fill(
        "SELECT sent.key, t.{0}::text "
        "FROM (SELECT unnest({2}) AS key, unnest({3}) AS value) AS sent "
        "JOIN {1} AS t ON t.{0} = sent.value",
        name(collection.key.name),
        rows_of(collection.name),
        arguments.column(0, "text"),
        arguments.column(1, key_cast(collection.key)),
    )


def list_values(collection: Collection, far: str, arguments: ArgumentSlots) -> Fragment:
    """Print the read of which value rows hold in a column; its rows are a key and that value.

    The first argument is the keys, the second the values, of which each row's is told as it came.
    """
    return fill(
        "SELECT t.{0}::text, named.value "
        "FROM (SELECT unnest({4}) AS value, unnest({5}) AS stored) AS named "
        "JOIN {1} AS t ON t.{2} = named.stored WHERE t.{0} = ANY ({3})",
        name(collection.key.name),
        rows_of(collection.name),
        name(far),
        arguments.column(0, key_cast(collection.key)),
        arguments.column(1, "text"),
        arguments.column(2, key_cast(collection.fields[far])),
    )


def history_key(collection: Collection, key: str) -> Fragment:
    """Print the read of a key as history names its item, which may be stored no more."""
    # As it is stored, where it is: a decimal key may be written 1 and 1.00.
    shape = "SELECT coalesce((SELECT t.{0}::text FROM {1} AS t WHERE t.{0} = {2}), {2}::text)"
    return fill(
        shape,
        name(collection.key.name),
        rows_of(collection.name),
        param(key, key_cast(collection.key)),
    )


def last_key(collection: Collection) -> Fragment:
    """Print the read of the largest key, as text."""
    return fill(
        "SELECT max({0})::text FROM {1}", name(collection.key.name), rows_of(collection.name)
    )


def singleton_key(collection: Collection) -> Fragment:
    """Print the read of the key of a singleton's row."""
    return fill(
        "SELECT {1}::text FROM {0} ORDER BY {1} LIMIT 1",
        rows_of(collection.name),
        name(collection.key.name),
    )


def lock_row(collection: Collection, key: str) -> Fragment:
    """Print the lock of one row, for the transaction."""
    shape = "SELECT FROM {0} WHERE {1} = {2}{3}"
    return fill(
        shape,
        name(collection.name),
        name(collection.key.name),
        param(key, key_cast(collection.key)),
        row_lock(collection, "UPDATE"),
    )


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
    answers = [fill("t0.{0}::text", name(key.name))]
    for rule in rules:
        # A rule that is NULL for a row, such as a comparison with NULL, does not hold.
        answers.append(fill("coalesce({0}, FALSE)", predicate(rule, 0)))
    shape = "SELECT {0} FROM {1} AS t0 WHERE t0.{2} = ANY ({3}) ORDER BY t0.{2}{4}"
    return fill(
        shape,
        commas(answers),
        rows_of(collection.name),
        name(key.name),
        param(list(keys), f"{key_cast(key)}[]"),
        row_lock(collection, "UPDATE") if lock else EMPTY,
    )


def item_contents(collection: Collection, keys: Sequence[str], *, masks: bool = True) -> Fragment:
    """Print the read of the contents of items; its rows are a key and the item as JSON.

    Items are locked in the order of their keys. Secrets are masked, or left out without `masks`.
    """
    return fill(
        "SELECT t0.{0}::text, {1}::text FROM {2} AS t0 WHERE t0.{0} = ANY ({3}) ORDER BY t0.{0}{4}",
        name(collection.key.name),
        whole_row(collection, masks=masks),
        rows_of(collection.name),
        param(array(keys), f"{key_cast(collection.key)}[]"),
        row_lock(collection),
    )
