"""Makes resolved rows of items that get nothing but automatic values.

They are items of an administrator, without owners, and of a collection without rules of fields or
hooks. There may be thousands, so these loops do no more than they must.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from cms.errors import Problem
from cms.items.write.stages.parsed import ParsedRow, ParsedSet
from cms.items.write.stages.problems import Problems
from cms.items.write.stages.resolved_rows import ResolvedRow, StoredRows
from cms.schema.auto_fields import AutoFields, AutoValues, complete_change, complete_new


class AutoFilling(NamedTuple):
    """The automatic fields of new or of changed rows, and this writer's values for them."""

    fields: AutoFields
    values: AutoValues


def new_plain_rows(
    parsed: ParsedSet, auto_filling: AutoFilling, problems: Problems
) -> list[ResolvedRow]:
    """Return the rows of new items."""
    rows: list[ResolvedRow] = []
    for row in parsed.rows:
        sent, row_values, position, _, invalid_fields, _ = row
        values = dict(row_values)
        row_problems = complete_new(values, *auto_filling)
        if row_problems:
            add_row_problems(row_problems, row, problems)
        # By `tuple.__new__` as in `ColumnRows`: the class itself takes twice the time. The order is
        # that of the fields of `ResolvedRow`, which no type checker compares here.
        fields = (sent, values, position, invalid_fields, None, True, None, None, None)
        rows.append(tuple.__new__(ResolvedRow, fields))
    return rows


def changed_plain_rows(
    parsed: ParsedSet,
    stored: StoredRows,
    auto_filling: AutoFilling,
    problems: Problems,
) -> list[ResolvedRow]:
    """Return the changes of stored items."""
    rows: list[ResolvedRow] = []
    for number, row in enumerate(parsed.rows):
        sent, row_values, position, _, invalid_fields, _ = row
        key = stored.keys[number]
        values = stored.changes(parsed.collection, number, row_values)
        row_problems = complete_change(values, *auto_filling)
        if row_problems:
            add_row_problems(row_problems, row, problems)
        fields = (sent, values, position, invalid_fields, None, False, key, None, None)
        rows.append(tuple.__new__(ResolvedRow, fields))
    return rows


def add_row_problems(
    row_problems: Iterable[Problem], row: ParsedRow | ResolvedRow, problems: Problems
) -> None:
    """Add the problems of a row, except those of fields that have a problem from parsing.

    A value that could not be parsed is missing among the values, and would be reported as missing.
    """
    for problem in row_problems:
        if problem.extensions.get("field") not in row.invalid_fields:
            problems.add(problem, row.position)
