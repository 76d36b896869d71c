"""The printers of tables and columns: by the alias at each level of a statement, and of answers."""

from __future__ import annotations

from collections.abc import Iterable

from cms.fragment import Fragment, commas, concat, fill, name, quoted, text
from cms.schema.model import Field


def alias(level: int) -> str:
    return f"t{level}"


def rows_of(collection: str) -> Fragment:
    """Print the rows that a collection has, for statements that read them: its table.

    Writes and locks name the table itself.
    """
    return name(collection)


def column_of(field: Field, level: int) -> Fragment:
    return fill(field.type.value_sql, stored_column(field, level))


def stored_column(field: Field, level: int) -> Fragment:
    return text(f"{alias(level)}.{quoted(field.name)}")


def numbered_outputs(values: Iterable[Fragment]) -> list[Fragment]:
    """Print values under the names c0, c1 …"""
    outputs = []
    for number, value in enumerate(values):
        outputs.append(concat(value, f" AS c{number}"))
    return outputs


def output_columns(row: str, count: int) -> Fragment:
    """Print the columns c0, c1 … of a row; without any there is a NULL in their place."""
    if count == 0:
        return text("NULL")
    return commas(text(f"{row}.c{number}") for number in range(count))
