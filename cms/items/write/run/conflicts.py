"""Finds the row of a call whose value the database refuses."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from decimal import Decimal, InvalidOperation
from typing import NamedTuple

from cms.database.error_mapping import Conflict
from cms.database.sqlstates import RULE_BROKEN
from cms.errors import Problem, abbreviated, capitalized
from cms.items.write.stages.problems import with_position
from cms.items.write.stages.resolved_rows import ResolvedRow
from cms.items.write.transaction.rows import has_one_text
from cms.schema.model import CheckConstraint, Collection
from cms.schema.types.field_type import Trait

# The row in the detail of an error, `Failing row contains (1, a (b), null).`: values may hold
# parentheses themselves, so the outermost ones count.
_ROW = re.compile(r"[^(]*+\((.*)\)", re.DOTALL)
_CODES_WITHOUT_COLUMN = ("INVALID_PAYLOAD", "VALUE_TOO_LONG", "VALUE_OUT_OF_RANGE")
"""Errors of a value for which PostgreSQL does not name the column."""


class _ValueSource(NamedTuple):
    """The row with a refused value, and the field that holds the value."""

    row: ResolvedRow
    field: str


@contextmanager
def locating_conflicts(collection: Collection, rows: Iterable[ResolvedRow]) -> Iterator[None]:
    """Add to a `Conflict` raised inside what `located` does; `rows` are written inside."""
    try:
        yield
    except Conflict as conflict:
        raise located(conflict, collection, rows) from None


def located(conflict: Conflict, collection: Collection, rows: Iterable[ResolvedRow]) -> Conflict:
    """Return a conflict with field, value and position in the payload, as far as they are found.

    If several of the written rows hold the refused value, the last one is named. A value that no
    row has sent is not shown, as it is a preset or the value of another row; nor is a secret.
    """
    problem = describe_check(conflict.problems[0], collection)
    # A trigger or a foreign key may refuse a row of another table, which is not among these.
    if problem.extensions.get("collection", collection.name) != collection.name:
        return conflict
    source = _find_source(conflict, problem, collection, list(rows))
    if source is not None:
        problem = with_field(problem, source.row, collection, source.field)
    return Conflict(problem, conflict.value, server_text=conflict.server_text)


def describe_check(problem: Problem, collection: Collection) -> Problem:
    """Add the expression of a CHECK, and the fields in it."""
    check = collection.checks.get(str(problem.extensions.get("constraint")))
    if check is None or problem.code != "INVALID_PAYLOAD":
        return problem
    extensions: dict[str, object] = {"collection": collection.name}
    if len(check.columns) == 1:
        extensions["field"] = check.columns[0]
    else:
        extensions["fields"] = list(check.columns)
    # Names from PostgreSQL itself come before those of the catalogue.
    extensions.update(problem.extensions)
    extensions["rule"] = check.rule
    return replace(problem, message=_message(collection, check), extensions=extensions)


def _message(collection: Collection, check: CheckConstraint) -> str:
    reason = check.rule if collection.is_system else RULE_BROKEN
    return f"Invalid payload. {capitalized(reason)}."


def _find_source(
    conflict: Conflict, problem: Problem, collection: Collection, rows: Sequence[ResolvedRow]
) -> _ValueSource | None:
    """Return the row that brought the value, and the field that holds it; None for no row."""
    name = problem.extensions.get("field")
    if isinstance(name, str):
        if name not in collection.fields:
            return None
        return _find_in_field(conflict, name, collection, rows)
    if problem.code not in _CODES_WITHOUT_COLUMN or "constraint" in problem.extensions:
        return None
    return _find_quoted(conflict, collection, rows)


def _find_in_field(
    conflict: Conflict, name: str, collection: Collection, rows: Sequence[ResolvedRow]
) -> _ValueSource | None:
    """Return the last row that holds the refused value in a field, as far as can be told."""
    candidates: list[ResolvedRow] = []
    # From the end: of rows with the same unique value PostgreSQL takes the first.
    for row in reversed(rows):
        if _may_hold(row, name, conflict.value):
            candidates.append(row)
    if conflict.value is None and _hold_different_values(candidates, name):
        # PostgreSQL names no value here, but prints the row that failed.
        failing = _failing_value(conflict.server_text, name, collection)
        candidates = _rows_with_value(candidates, name, failing)
    if not candidates and not has_one_text(collection.fields[name]):
        # PostgreSQL writes such a value in its own way, so that only a single row can be told.
        holding = [row for row in rows if _may_hold(row, name, None)]
        candidates = holding if len(holding) == 1 else []
    if not candidates:
        return None
    return _ValueSource(candidates[0], name)


def _may_hold(row: ResolvedRow, name: str, value: str | None) -> bool:
    """Tell whether a row may hold a value in a field; None is a value that is not known."""
    if row.values.get(name) is None:
        return False
    # A text in char(n) is named with its padding.
    return value is None or value in _spellings(row, name) or value.rstrip() == row.values[name]


def _hold_different_values(rows: Iterable[ResolvedRow], name: str) -> bool:
    values = {row.values[name] for row in rows}
    return len(values) > 1


def _rows_with_value(
    rows: Sequence[ResolvedRow], name: str, value: str | None
) -> list[ResolvedRow]:
    """Return the rows that hold a value in a field; none for a value that is not known."""
    if value is None:
        return []
    return [row for row in rows if _is_same(str(row.values[name]), value)]


def _failing_value(server_text: str, name: str, collection: Collection) -> str | None:
    """Return a field of the row that PostgreSQL prints, such as (1, x, …).

    None where commas inside a text make it ambiguous.
    """
    # Only where as many values as columns come out was no comma part of a value.
    printed_row = _ROW.match(server_text)
    values = printed_row[1].split(", ") if printed_row else []
    names = [column.name for column in collection.columns]
    if len(values) != len(names):
        return None
    return values[names.index(name)]


def _is_same(sent: str, stored: str) -> bool:
    """Tell whether a value was stored as it was sent; a number may get other zeros at its end."""
    try:
        return sent == stored or Decimal(sent) == Decimal(stored)
    except InvalidOperation:
        return False


def _spellings(row: ResolvedRow, name: str) -> tuple[str, ...]:
    """Return the forms in which PostgreSQL may name a value: as sent, and in small letters."""
    # A unique index that ignores the case is on lower(…), and names that.
    value = str(row.values[name])
    return value, value.lower()


def _find_quoted(
    conflict: Conflict, collection: Collection, rows: Sequence[ResolvedRow]
) -> _ValueSource | None:
    """Return the row and field whose value PostgreSQL quotes in its message.

    Only fields of types that the service does not know are looked at: it checks all others itself.
    """
    names = [column.name for column in collection.columns if not column.type.is_known]
    last_source: _ValueSource | None = None
    different: set[tuple[str, object]] = set()
    for row in rows:
        for name in names:
            value = row.values.get(name)
            if _is_quoted(value, conflict.server_text):
                last_source = _ValueSource(row, name)
                different.add((name, value))
    # Two different values in one message: there is no telling which is meant.
    if len(different) > 1:
        return None
    return last_source


def _is_quoted(value: str | None, server_text: str) -> bool:
    return value is not None and f'"{value}"' in server_text


def with_field(problem: Problem, row: ResolvedRow, collection: Collection, name: str) -> Problem:
    """Add a field, its value unless that is a secret or was not sent, and its position."""
    field = collection.fields[name]
    extensions = {"collection": collection.name, **problem.extensions, "field": name}
    if name in row.sent and not field.is_secret:
        value = row.sent[name]
        if isinstance(value, dict | list) and Trait.JSON not in field.type.traits:
            value = row.values.get(name)  # the key of a related item
        extensions["value"] = abbreviated(value)
    return with_position(replace(problem, extensions=extensions), row.position)
