"""A query taken apart, so that problems of one part do not hide problems of the next."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import replace
from itertools import islice
from typing import TypeVar

from cms.errors import Problem, Refused, combined
from cms.query.language.ast import And, AtField, Filter, Or, Pick, Query, Star
from cms.query.language.limits import LimitExceeded

MAX_PARTS = 200
"""The number of parts that are tried: a refusal may cost only a few times as much as the query."""

NestingPick = TypeVar("NestingPick", bound=Pick | Star)


def refusal_of_all(query: Query, attempt: Callable[[Query], object], *, first: Refused) -> Refused:
    """Return the refusal of a query with the problems of all its parts, each tried by itself.

    Only problems with the status of the `first` refusal are kept: hidden names are never mixed with
    wrong ones. Where all parts together exceed a limit of queries, the rest of them is not tried.
    """
    problems = [*first.problems]
    # `combined` drops the problems for which the whole query was refused already.
    with suppress(LimitExceeded):
        for part in islice(parts_of(query), MAX_PARTS):
            problems.extend(_problems(part, attempt, first.status))
    return combined(problems)


def _problems(part: Query, attempt: Callable[[Query], object], status: int) -> Iterable[Problem]:
    try:
        attempt(part)
    except LimitExceeded:
        raise
    except Refused as refused:
        if refused.status == status:
            return refused.problems
    return ()


def parts_of(query: Query) -> Iterator[Query]:
    """Yield queries that each hold one part of a query: a pick, a test, a term of the sort …"""
    empty = Query(picks=(), window=query.window, base_filter=query.base_filter, deep=query.deep)
    # Terms of the sort may name groups and aggregates, which therefore stay beside them.
    grouped = replace(empty, aggregates=query.aggregates, groups=query.groups)
    for pick in query.picks:
        for part in _parts_of_nested(pick):
            yield replace(empty, picks=(part,))
    for pick in query.checked_only:
        for part in _parts_of_nested(pick):
            yield replace(empty, checked_only=(part,))
    for test in _tests_of(query.filter):
        yield replace(empty, filter=test)
    for term in query.sort:
        # Without a search nothing is sorted by relevance.
        yield replace(grouped, sort=(term,), search=query.search)
    for aggregate in query.aggregates:
        yield replace(empty, aggregates=(aggregate,))
    for group in query.groups:
        yield replace(empty, groups=(group,))


def _parts_of_nested(pick: NestingPick) -> Iterator[NestingPick]:
    if pick.nested is None:
        yield pick
        return
    has_parts = False
    for part in parts_of(pick.nested):
        has_parts = True
        yield replace(pick, nested=part)
    # A list without fields and filters is opened all the same.
    if not has_parts:
        yield pick


def _tests_of(filter: Filter) -> Iterator[Filter]:
    """Yield the tests of a filter, each inside the names that lead to it."""
    match filter:
        # Each test is tried by itself here, so that its problems do not depend on AND or OR.
        case And(items) | Or(items):
            for item in items:
                yield from _tests_of(item)
        case AtField(name, inner):
            for test in _tests_of(inner):
                yield AtField(name, test)
        case _:
            yield filter
