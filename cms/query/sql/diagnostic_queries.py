"""The printers of queries about rows that the database has refused.

cms/items/write/run/refusal_diagnosis.py runs them.

Values are sent as text and cast to the types of their columns without domains and lengths, unless
the question is about these. Where the answer is rows, they hold the numbers of the refused rows,
from 1.
"""

from __future__ import annotations

from collections.abc import Sequence

from cms.fragment import Fragment, commas, concat, fill, name, param, text
from cms.query.sql.arguments import array
from cms.query.sql.columns import numbered_rows, rows_of
from cms.query.sql.keys import key_text
from cms.schema.model import CheckConstraint, Collection, Field, ForeignKey
from cms.schema.system import system_table

Texts = Sequence[str | None]


def cast_all(field: Field, values: Texts) -> Fragment:
    """Print a statement that fails if the type of a column, or its domain, refuses a value."""
    assert field.column
    # Nobody reads the count: it makes PostgreSQL compute every cast.
    shape = "SELECT count(CAST({0} AS {1})) FROM {2}"
    return fill(shape, _typed(field, "r.c0"), text(field.column.data_type), _source([values]))


def rows_breaking(
    collection: Collection, check: CheckConstraint, columns: Sequence[Texts]
) -> Fragment:
    """Print the question which rows break a check; `columns` are the values of its columns."""
    cells = []
    for index, column in enumerate(check.columns):
        cell = _typed(collection.fields[column], f"r.c{index}")
        cells.append(concat(cell, " AS ", name(column)))
    # The expression names columns without a table: a table of this one row stands around it.
    # A check holds when it is TRUE or NULL; NOT NULL is NULL, and a WHERE drops such a row.
    broken = concat(
        "SELECT NOT (",
        str(check.expression),
        ") FROM (SELECT ",
        commas(cells),
        ") AS ",
        rows_of(collection.name),
    )
    return fill("SELECT r.n FROM {0} WHERE ({1})", _source(columns), broken)


def rows_dangling(field: Field, constraint: ForeignKey, values: Texts) -> Fragment:
    """Print the question which rows point to a row that does not exist."""
    # As for the foreign key itself, null points nowhere.
    return fill(
        "SELECT r.n FROM {0} WHERE r.c0 IS NOT NULL AND NOT EXISTS (SELECT FROM {1} AS t WHERE "
        "t.{2} = {3})",
        _source([values]),
        rows_of(constraint.foreign_table),
        name(constraint.foreign_columns[0]),
        _typed(field, "r.c0"),
    )


def rows_holding(collection: Collection, field: Field, values: Texts) -> Fragment:
    """Print the question which values exist in the table; its rows are numbers and keys there."""
    return fill(
        "SELECT r.n, {0} FROM {1} JOIN {2} AS t ON {3} = {4}",
        key_text(collection.key, "t"),
        _source([values]),
        rows_of(collection.name),
        _compared(field, concat("t.", name(field.name))),
        _compared(field, _typed(field, "r.c0")),
    )


def rows_repeating(field: Field, values: Texts) -> Fragment:
    """Print the question which rows repeat a value of a row before them, found in one pass."""
    return fill(
        "SELECT s.n FROM (SELECT r.n, row_number() OVER (PARTITION BY {0} ORDER BY r.n) AS turn "
        "FROM {1}) AS s "
        "WHERE s.turn > 1",
        _compared(field, _typed(field, "r.c0")),
        _source([values]),
    )


def _compared(field: Field, value: Fragment) -> Fragment:
    # The unique index is over lower(…), as for addresses of users.
    if field.name in system_table(field.collection).unique_in_any_case:
        return fill("lower({0})", value)
    return value


def _source(columns: Sequence[Texts]) -> Fragment:
    """Print the rows that have these columns, as r (c0 …, n)."""
    return numbered_rows([param(array(column), "text[]") for column in columns])


def _typed(field: Field, column: str) -> Fragment:
    assert field.column
    return text(field.type.text_sql.format(column, field.column.cast))
