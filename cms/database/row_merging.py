"""Rows of a backup merged into a table that has rows: staged first, then compared, then written."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from psycopg import sql

from cms.database.bulk import TableInSchema, copy_in, plain_errors
from cms.database.connections import Row, Transaction, single_value

STAGED = TableInSchema("pg_temp", "restored_rows")
"""The temporary table of the rows."""

_MAX_EXAMPLES = 5


class Merged(NamedTuple):
    """How many rows were new, and how many replaced one with the same key."""

    created: int
    replaced: int


@dataclass(frozen=True, slots=True)
class ForeignKey:
    """A foreign key: columns, and the table with the columns that they name.

    `collations` are those of the latter, as PostgreSQL writes their names; None for a type without.
    """

    name: str
    columns: tuple[str, ...]
    target: TableInSchema
    target_columns: tuple[str, ...]
    collations: tuple[str | None, ...]


@dataclass(frozen=True, slots=True)
class Unmatched:
    """Rows whose foreign key points nowhere: how many, and some of the values."""

    count: int
    examples: tuple[str, ...]


def stage(
    transaction: Transaction, table: TableInSchema, columns: Sequence[str], pieces: Iterator[bytes]
) -> int:
    """Copy rows into a temporary table with the columns of `table`; returns their number."""
    command = sql.SQL(
        "CREATE TEMPORARY TABLE {} ON COMMIT DROP AS SELECT {} FROM {} WITH NO DATA"
    ).format(STAGED.identifier, _names(columns), table.identifier)
    with plain_errors(f"The rows of {table.name} cannot be read"):
        transaction.connection.execute(command)
    return copy_in(transaction, STAGED, columns, pieces)


def unmatched(transaction: Transaction, table: TableInSchema, key: ForeignKey) -> Unmatched:
    """Return the staged rows whose foreign key names a row that is neither stored nor staged."""
    conditions = [_has_no_target(key, key.target)]
    if key.target == table:
        conditions.append(_has_no_target(key, STAGED))
    columns = [sql.Identifier("staged", name) for name in key.columns]
    query = sql.SQL(
        "SELECT concat_ws(', ', {columns}), count(*) OVER () FROM {staged} AS staged "
        "WHERE num_nulls({columns}) = 0 AND {conditions} "
        "GROUP BY {columns} ORDER BY 1 LIMIT {limit}"
    ).format(
        columns=sql.SQL(", ").join(columns),
        staged=STAGED.identifier,
        conditions=sql.SQL(" AND ").join(conditions),
        limit=sql.Literal(_MAX_EXAMPLES),
    )
    rows = _fetch(transaction, query)
    if not rows:
        return Unmatched(0, ())
    count = rows[0][1]
    return Unmatched(count, tuple(example for example, _ in rows))


def has_changes(
    transaction: Transaction, table: TableInSchema, *, keys: Sequence[str], column: str
) -> bool:
    """Tell whether a staged row has another value in a column than the row with its key."""
    query = sql.SQL(
        "SELECT EXISTS (SELECT FROM {} AS staged JOIN {} AS stored USING ({}) "
        "WHERE staged.{column} IS DISTINCT FROM stored.{column})"
    ).format(STAGED.identifier, table.identifier, _names(keys), column=sql.Identifier(column))
    return bool(single_value(_fetch(transaction, query)))


def merge(
    transaction: Transaction,
    table: TableInSchema,
    columns: Sequence[str],
    *,
    keys: Sequence[str],
    fixed: Sequence[str],
) -> Merged:
    """Write the staged rows: new ones are added, those with the key of a row replace its values.

    `fixed` are columns that PostgreSQL sets in new rows only.
    """
    replaced_rows = sql.SQL("SELECT count(*) FROM {} JOIN {} USING ({})").format(
        STAGED.identifier, table.identifier, _names(keys)
    )
    staged_rows = sql.SQL("SELECT count(*) FROM {}").format(STAGED.identifier)
    replaced = int(single_value(_fetch(transaction, replaced_rows)))
    staged = int(single_value(_fetch(transaction, staged_rows)))
    command = sql.SQL(
        "INSERT INTO {table} ({columns}) OVERRIDING SYSTEM VALUE "
        "SELECT {columns} FROM {staged} ON CONFLICT ({keys}) DO {action}"
    ).format(
        table=table.identifier,
        columns=_names(columns),
        staged=STAGED.identifier,
        keys=_names(keys),
        action=_conflict_action(columns, [*keys, *fixed]),
    )
    with plain_errors(f"The rows of {table.name} cannot be written"):
        transaction.connection.execute(command)
    return Merged(staged - replaced, replaced)


def _conflict_action(columns: Sequence[str], unchanged: Sequence[str]) -> sql.Composable:
    """Return the ON CONFLICT action: a stored row with a staged row's key gets its other values."""
    values: list[sql.Composable] = []
    for name in columns:
        if name not in unchanged:
            values.append(sql.SQL("{0} = EXCLUDED.{0}").format(sql.Identifier(name)))
    if not values:
        return sql.SQL("NOTHING")
    return sql.SQL("UPDATE SET {}").format(sql.SQL(", ").join(values))


def largest_staged(transaction: Transaction, column: str) -> int | None:
    """Return the largest value of a column with numbers that a sequence can give."""
    # Compared exactly: as a float, the largest number is one that no sequence gives.
    query = sql.SQL(
        "SELECT (max({column}) FILTER (WHERE {column}::numeric BETWEEN {least} AND {most}))::bigint"
        " FROM {}"
    ).format(
        STAGED.identifier,
        column=sql.Identifier(column),
        least=sql.Literal(-(2**63)),
        most=sql.Literal(2**63 - 1),
    )
    value: int | None = single_value(_fetch(transaction, query))
    return value


def _has_no_target(key: ForeignKey, target: TableInSchema) -> sql.Composed:
    """Return the condition that no row of `target` has the values of a staged foreign key."""
    conditions: list[sql.Composed] = []
    columns = zip(key.target_columns, key.columns, key.collations, strict=True)
    for target_column, column, collation in columns:
        condition = sql.SQL("target.{} = staged.{}").format(
            sql.Identifier(target_column), sql.Identifier(column)
        )
        # Of texts with different collations PostgreSQL does not choose one, but for a foreign key.
        if collation is not None:
            condition += sql.SQL(" COLLATE ") + sql.SQL(collation)
        conditions.append(condition)
    return sql.SQL("NOT EXISTS (SELECT FROM {} AS target WHERE {})").format(
        target.identifier, sql.SQL(" AND ").join(conditions)
    )


def _names(columns: Sequence[str]) -> sql.Composed:
    return sql.SQL(", ").join(map(sql.Identifier, columns))


def _fetch(transaction: Transaction, query: sql.Composed) -> list[Row]:
    with plain_errors("The rows of the archive cannot be compared"):
        return transaction.connection.execute(query).fetchall()
