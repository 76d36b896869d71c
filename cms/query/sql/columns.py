"""The printer of columns, by the alias of the table at each level of a statement."""

from __future__ import annotations

from cms.fragment import Fragment, fill, quoted, text
from cms.schema.model import Field


def alias(level: int) -> str:
    return f"t{level}"


def column_of(field: Field, level: int) -> Fragment:
    return fill(field.type.value_sql, text(f"{alias(level)}.{quoted(field.name)}"))
