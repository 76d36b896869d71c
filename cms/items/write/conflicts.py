"""Which row of a call brought the value that the database refuses (decisions, section 2)."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from decimal import Decimal, InvalidOperation

from cms.database.error_mapping import Conflict
from cms.errors import Problem, abbreviated
from cms.items.write.changes import Problems, RowChange
from cms.schema.model import Check, Collection
from cms.schema.types import Family

_ROW = re.compile(r"\((.*)\)", re.DOTALL)
_CODES_WITHOUT_COLUMN = ("INVALID_PAYLOAD", "VALUE_TOO_LONG", "VALUE_OUT_OF_RANGE")
"""Faults of a value whose column PostgreSQL does not name."""


@contextmanager
def locating_conflicts(collection: Collection, changes: Sequence[RowChange]) -> Iterator[None]:
    """Add the field, the value, and the place where it was sent, to a refusal of the rows that are written inside.

    A value that no row has sent is another's or a preset's and is not told, nor is a secret; of several rows with the
    same the last one is meant.
    """
    try:
        yield
    except Conflict as conflict:
        problem = describe_check(conflict.problems[0], collection)
        if problem.extensions.get("collection", collection.name) != collection.name:
            raise
        sent = _find_row(conflict, problem, collection, changes)
        if sent is None:
            if problem is conflict.problems[0]:
                raise
            raise Conflict(problem, conflict.value, server_text=conflict.server_text) from conflict
        change, name = sent
        raise Conflict(
            with_field(problem, change, collection, name),
            conflict.value,
            server_text=conflict.server_text,
        ) from conflict


def describe_check(problem: Problem, collection: Collection) -> Problem:
    """Add what a check says, and the one field that it speaks of."""
    check = collection.checks.get(str(problem.extensions.get("constraint")))
    if check is None or problem.code != "INVALID_PAYLOAD":
        return problem
    fields = (
        {"field": check.columns[0]} if len(check.columns) == 1 else {"fields": list(check.columns)}
    )
    extensions = {"collection": collection.name, **fields, **problem.extensions, "rule": check.rule}
    return replace(problem, message=_sentence(collection, check), extensions=extensions)


def _sentence(collection: Collection, check: Check) -> str:
    reason = check.rule if collection.system else "A value breaks a rule of the table"
    return f"Invalid payload. {reason[0].upper()}{reason[1:]}."


def _find_row(
    conflict: Conflict, problem: Problem, collection: Collection, changes: Sequence[RowChange]
) -> tuple[RowChange, str] | None:
    """Return the row that brought the value, and the field that holds it there; None where no row has."""
    name = problem.extensions.get("field")
    if isinstance(name, str):
        return (
            _row_of_field(conflict, name, collection, changes)
            if name in collection.fields
            else None
        )
    if problem.code not in _CODES_WITHOUT_COLUMN or "constraint" in problem.extensions:
        return None
    return _find_quoted(conflict, collection, changes)


def _row_of_field(
    conflict: Conflict, name: str, collection: Collection, changes: Sequence[RowChange]
) -> tuple[RowChange, str] | None:
    """Return the last row that holds the value in question, for all that is known of it."""
    rows = [change for change in reversed(changes) if change.values.get(name) is not None]
    if conflict.value is not None:
        rows = [change for change in rows if conflict.value in _spellings(change, name)]
    elif len({change.values[name] for change in rows}) > 1:
        failing = _failing_value(conflict.server_text, name, collection)
        rows = [
            change
            for change in rows
            if failing is not None and _is_same(str(change.values[name]), failing)
        ]
    return (rows[0], name) if rows else None


def _failing_value(server_text: str, name: str, collection: Collection) -> str | None:
    """Return a field of the row that PostgreSQL shows, (1, x, …); None where commas in a text confuse it."""
    shown_row = _ROW.search(server_text)
    values = shown_row[1].split(", ") if shown_row else []
    names = [found.name for found in collection.columns]
    return values[names.index(name)] if len(values) == len(names) else None


def _is_same(sent: str, stored: str) -> bool:
    """Tell whether a value was stored as it was sent; a number may have other zeros at its end."""
    try:
        return sent == stored or Decimal(sent) == Decimal(stored)
    except InvalidOperation:
        return False


def _spellings(change: RowChange, name: str) -> tuple[str, ...]:
    """A key may take capitals and small letters for the same."""
    value = str(change.values[name])
    return value, value.lower()


def _find_quoted(
    conflict: Conflict, collection: Collection, changes: Sequence[RowChange]
) -> tuple[RowChange, str] | None:
    """Return the one row and field whose type is PostgreSQL's own and whose value stands in what it said."""
    own = [found.name for found in collection.columns if found.type_name == "unknown"]
    quoting = [
        (change, name)
        for change in changes
        for name in own
        if _is_quoted(change.values.get(name), conflict.server_text)
    ]
    same = {(name, change.values[name]) for change, name in quoting}
    return quoting[-1] if len(same) == 1 else None


def _is_quoted(value: str | None, server_text: str) -> bool:
    return value is not None and f'"{value}"' in server_text


def with_field(problem: Problem, change: RowChange, collection: Collection, name: str) -> Problem:
    is_secret = collection.fields[name].is_secret or name not in change.sent
    sent = change.sent.get(name)
    relates = (
        isinstance(sent, dict | list) and collection.fields[name].type.family is not Family.JSON
    )
    text = change.values.get(name) if relates else sent  # a related item stands for its key
    value = {} if is_secret else {"value": abbreviated(text)}
    extensions = {"collection": collection.name, **problem.extensions, "field": name, **value}
    return with_path(replace(problem, extensions=extensions), change)


def with_path(problem: Problem, change: RowChange) -> Problem:
    problems = Problems()
    problems.add(problem, change.position)
    return problems.entries[0][1]
