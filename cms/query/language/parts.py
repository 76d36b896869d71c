"""A query taken apart, so that what is wrong with one part does not hide what is wrong with the next."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from itertools import islice

from cms.errors import Problem, Refused, combined
from cms.query.language.ast import And, AtField, Filter, Or, Pick, Query

MAX_PARTS = 200
"""How many parts are looked at: a refusal may cost a few times what the query would have cost, and no more."""


def refusal_of_all(query: Query, attempt: Callable[[Query], object], *, first: Refused) -> Refused:
    """Return the refusal of a query with what is wrong with any of its parts, each attempted by itself.

    Only problems with the status of the `first` refusal are told: what is hidden is never mixed with what is wrong.
    """
    problems = [*first.problems]
    for part in islice(parts_of(query), MAX_PARTS):
        problems.extend(_problems(part, attempt, first.status))
    return combined(problems)


def _problems(part: Query, attempt: Callable[[Query], object], status: int) -> Iterable[Problem]:
    try:
        attempt(part)
    except Refused as refused:
        return refused.problems if refused.status == status else ()
    return ()


def parts_of(query: Query) -> Iterator[Query]:
    """Yield queries that each ask for one thing of those that a query asks for."""
    bare = Query(picks=(), window=query.window, base_filter=query.base_filter, deep=query.deep)
    grouped = replace(bare, aggregates=query.aggregates, groups=query.groups)
    for pick in query.picks:
        yield from (replace(bare, picks=(part,)) for part in _parts_of_pick(pick))
    for pick in query.checked_only:
        yield from (replace(bare, checked_only=(part,)) for part in _parts_of_pick(pick))
    for test in _tests_of(query.filter):
        yield replace(bare, filter=test)
    for term in query.sort:
        yield replace(grouped, sort=(term,))
    for aggregate in query.aggregates:
        yield replace(bare, aggregates=(aggregate,))
    for group in query.groups:
        yield replace(bare, groups=(group,))


def _parts_of_pick(pick: Pick) -> Iterator[Pick]:
    if pick.nested is None:
        yield pick
        return
    alone = True
    for part in parts_of(pick.nested):
        alone = False
        yield replace(pick, nested=part)
    if alone:
        yield pick


def _tests_of(said: Filter) -> Iterator[Filter]:
    """Yield the tests of a filter, each behind the names that lead to it."""
    match said:
        case And(items) | Or(items):
            for item in items:
                yield from _tests_of(item)
        case AtField(name, inner):
            for test in _tests_of(inner):
                yield AtField(name, test)
        case _:
            yield said
