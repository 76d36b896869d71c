"""Rows of a backup merged into a table that has rows: staged first, then compared, then written."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from psycopg import sql

from cms.database.bulk import copy_in, plain_errors
from cms.database.connections import Row, Transaction

STAGED = "restored_rows"
"""The temporary table of the rows; PostgreSQL looks for temporary tables first."""

_MAX_EXAMPLES = 5


class Merged(NamedTuple):
    """How many rows were new, and how many replaced one with the same key."""

    created: int
    replaced: int


@dataclass(frozen=True, slots=True)
class ForeignKey:
    """A foreign key: columns, and the table with the columns that they name."""

    name: str
    columns: tuple[str, ...]
    target_schema: str
    target: str
    target_columns: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Unmatched:
    """Rows whose foreign key points nowhere: how many, and some of the values."""

    count: int
    examples: tuple[str, ...]


def stage(
    transaction: Transaction, table: str, columns: Sequence[str], pieces: Iterator[bytes]
) -> int:
    """Copy rows into a temporary table with the columns of `table`; returns their number."""
    command = sql.SQL(
        "CREATE TEMPORARY TABLE {} ON COMMIT DROP AS SELECT {} FROM {} WITH NO DATA"
    ).format(sql.Identifier(STAGED), _names(columns), sql.Identifier(table))
    with plain_errors(f"The rows of {table} cannot be read"):
        transaction.connection.execute(command)
    return copy_in(transaction, STAGED, columns, pieces)


def unmatched(transaction: Transaction, table: str, key: ForeignKey) -> Unmatched:
    """Return the staged rows whose foreign key names a row that is neither stored nor staged."""
    conditions = [_has_no_target(key, sql.Identifier(key.target_schema, key.target))]
    if key.target == table:
        conditions.append(_has_no_target(key, sql.Identifier(STAGED)))
    columns = [sql.Identifier("staged", name) for name in key.columns]
    query = sql.SQL(
        "SELECT concat_ws(', ', {columns}), count(*) OVER () FROM {staged} AS staged "
        "WHERE num_nulls({columns}) = 0 AND {conditions} "
        "GROUP BY {columns} ORDER BY 1 LIMIT {limit}"
    ).format(
        columns=sql.SQL(", ").join(columns),
        staged=sql.Identifier(STAGED),
        conditions=sql.SQL(" AND ").join(conditions),
        limit=sql.Literal(_MAX_EXAMPLES),
    )
    rows = _fetch(transaction, query)
    if not rows:
        return Unmatched(0, ())
    count = rows[0][1]
    return Unmatched(count, tuple(example for example, _ in rows))


def merge(
    transaction: Transaction, table: str, columns: Sequence[str], keys: Sequence[str]
) -> Merged:
    """Write the staged rows: new ones are added, those with the key of a row replace its values."""
    replaced_rows = sql.SQL("SELECT count(*) FROM {} JOIN {} USING ({})").format(
        sql.Identifier(STAGED), sql.Identifier(table), _names(keys)
    )
    staged_rows = sql.SQL("SELECT count(*) FROM {}").format(sql.Identifier(STAGED))
    replaced = _count(transaction, replaced_rows)
    staged = _count(transaction, staged_rows)
    command = sql.SQL(
        "INSERT INTO {table} ({columns}) OVERRIDING SYSTEM VALUE "
        "SELECT {columns} FROM {staged} ON CONFLICT ({keys}) DO {action}"
    ).format(
        table=sql.Identifier(table),
        columns=_names(columns),
        staged=sql.Identifier(STAGED),
        keys=_names(keys),
        action=_conflict_action(columns, keys),
    )
    with plain_errors(f"The rows of {table} cannot be written"):
        transaction.connection.execute(command)
    return Merged(staged - replaced, replaced)


def _conflict_action(columns: Sequence[str], keys: Sequence[str]) -> sql.Composable:
    """Return the ON CONFLICT action: a stored row with a staged row's key gets its other values."""
    values: list[sql.Composable] = []
    for name in columns:
        if name not in keys:
            values.append(sql.SQL("{0} = EXCLUDED.{0}").format(sql.Identifier(name)))
    if not values:
        return sql.SQL("NOTHING")
    return sql.SQL("UPDATE SET {}").format(sql.SQL(", ").join(values))


def largest_staged(transaction: Transaction, column: str) -> int | None:
    """Return the largest value of a column with whole numbers among the staged rows."""
    query = sql.SQL("SELECT max({})::bigint FROM {}").format(
        sql.Identifier(column), sql.Identifier(STAGED)
    )
    value: int | None = _fetch(transaction, query)[0][0]
    return value


def _has_no_target(key: ForeignKey, target: sql.Identifier) -> sql.Composed:
    """Return the condition that no row of `target` has the values of a staged foreign key."""
    conditions: list[sql.Composed] = []
    for target_column, column in zip(key.target_columns, key.columns, strict=True):
        condition = sql.SQL("target.{} = staged.{}").format(
            sql.Identifier(target_column), sql.Identifier(column)
        )
        conditions.append(condition)
    return sql.SQL("NOT EXISTS (SELECT FROM {} AS target WHERE {})").format(
        target, sql.SQL(" AND ").join(conditions)
    )


def _names(columns: Sequence[str]) -> sql.Composed:
    return sql.SQL(", ").join(map(sql.Identifier, columns))


def _count(transaction: Transaction, query: sql.Composed) -> int:
    count: int = _fetch(transaction, query)[0][0]
    return count


def _fetch(transaction: Transaction, query: sql.Composed) -> list[Row]:
    with plain_errors("The rows of the archive cannot be compared"):
        return transaction.connection.execute(query).fetchall()
