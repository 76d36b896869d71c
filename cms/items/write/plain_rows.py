"""Makes resolved rows of items to which nothing but automatic values is added, often thousands.

All of them are items of an administrator, without rules of fields and without owners.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from cms.errors import Problem
from cms.items.write.parsed import ParsedRow, ParsedSet
from cms.items.write.problems import Problems
from cms.items.write.resolved_rows import ResolvedRow
from cms.schema.auto_fields import AutoFields, AutoValues, complete_change, complete_new


class AutoFilling(NamedTuple):
    """The automatic fields of new or of changed rows, and this writer's values for them."""

    fields: AutoFields
    values: AutoValues


def new_plain_rows(
    parsed: ParsedSet, auto_filling: AutoFilling, problems: Problems
) -> list[ResolvedRow]:
    """Return new items."""
    rows: list[ResolvedRow] = []
    for row in parsed.rows:
        sent, row_values, position, _, invalid_fields, _ = row
        values = dict(row_values)
        row_problems = complete_new(values, *auto_filling)
        if row_problems:
            add_row_problems(row_problems, row, problems)
        # By `tuple.__new__` as in `ColumnRows`: the class itself takes twice the time.
        fields = (sent, values, position, invalid_fields, None, True, None, None, None)
        rows.append(tuple.__new__(ResolvedRow, fields))
    return rows


def changed_plain_rows(
    parsed: ParsedSet,
    keys: Mapping[int, str | None],
    auto_filling: AutoFilling,
    problems: Problems,
) -> list[ResolvedRow]:
    """Return changes of the items of the keys, by number; None is the key of a missing item."""
    key_field = parsed.key_field
    rows: list[ResolvedRow] = []
    for number, row in enumerate(parsed.rows):
        sent, row_values, position, _, invalid_fields, _ = row
        key = keys[number]
        values = dict(row_values)
        # A key of null has been refused as one that is missing.
        if key is not None or values.get(key_field) is None:
            values.pop(key_field, None)
        row_problems = complete_change(values, *auto_filling)
        if row_problems:
            add_row_problems(row_problems, row, problems)
        fields = (sent, values, position, invalid_fields, None, False, key, None, None)
        rows.append(tuple.__new__(ResolvedRow, fields))
    return rows


def add_row_problems(
    row_problems: Iterable[Problem], row: ParsedRow | ResolvedRow, problems: Problems
) -> None:
    """Keep the problems of a row, except for fields whose values are known to be unusable."""
    for problem in row_problems:
        if problem.extensions.get("field") not in row.invalid_fields:
            problems.add(problem, row.position)
