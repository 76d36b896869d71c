"""Refusals by the database: with all other values that it refuses, or of every attempt."""

from __future__ import annotations

from collections.abc import Callable

from cms.database.connections import Row
from cms.database.error_mapping import Deadlock, Stale
from cms.errors import MAX_PROBLEMS, STATUS, Problem, Refused, unavailable
from cms.fragment import Fragment

NOT_MIGRATED = "It is not migrated; run `cms migrate`"

RunQuestion = Callable[[Fragment], list[Row]]
"""Runs a statement by itself, so that one that fails undoes nothing else."""

_COMPLETABLE_STATUSES = {STATUS["INVALID_PAYLOAD"], STATUS["FAILED_VALIDATION"]}
"""Statuses of refused values: other refusals come before any value is looked at."""

_IDENTIFYING_KEYS = ("operation", "field", "constraint")
"""Extensions that tell one failed check from another."""

_POSITION_KEYS = ("operation", "index", "path", "field", "fields")
"""Extensions that name one value of the request."""


def with_inquiry(refused: Refused, run_question: RunQuestion) -> Refused:
    """Return a refusal with the problems that its inquiry finds, in the order of the items."""
    if refused.inquiry is None or len(refused.problems) >= MAX_PROBLEMS:
        return refused
    if not _is_about_values(refused):
        return refused
    discovered = refused.inquiry(run_question)
    # The inquiry finds the first problem again, and then with the position of its value.
    known = []
    for problem in refused.problems:
        if not any(_is_more_specific(other, problem) for other in discovered):
            known.append(problem)
    # By their text, because extensions are no keys of a dict. One body may have changed many items,
    # and then its problem comes back for each of them.
    added: dict[str, Problem] = {}
    for problem in discovered:
        if not any(_is_same_value(problem, other) for other in known):
            added[repr(problem)] = problem
    problems = sorted([*known, *added.values()], key=index_of)
    return Refused(problems[:MAX_PROBLEMS], total=refused.total + len(added))


def _is_about_values(refused: Refused) -> bool:
    return all(STATUS[problem.code] in _COMPLETABLE_STATUSES for problem in refused.problems)


def _is_same_value(problem: Problem, known: Problem) -> bool:
    """Tell whether two problems are of one value, or of one check of several values."""
    for key in _POSITION_KEYS:
        if known.extensions.get(key) != problem.extensions.get(key):
            return False
    # A value has one problem at a time. Without a field both are of a check of several values, and
    # an item may break several checks.
    return "field" in known.extensions or _is_same_fault(problem, known)


def _is_more_specific(problem: Problem, known: Problem) -> bool:
    """Tell whether a problem has the position of a value that a known one leaves out."""
    if "path" in known.extensions or not _is_same_fault(problem, known):
        return False
    return all(_agrees(known, problem, key) for key in _IDENTIFYING_KEYS)


def _agrees(known: Problem, problem: Problem, key: str) -> bool:
    # PostgreSQL does not always name the field: a missing extension contradicts none.
    return known.extensions.get(key) in (None, problem.extensions.get(key))


def _is_same_fault(problem: Problem, other: Problem) -> bool:
    return (problem.code, problem.message) == (other.code, other.message)


def index_of(problem: Problem) -> int:
    """Return the index of the item that a problem is about, 0 where it names none."""
    # A body with a single item has no indexes.
    index = problem.extensions.get("index")
    if isinstance(index, int):
        return index
    return 0


def refusal_of_stale(stale: Stale) -> Refused:
    """Return SERVICE_UNAVAILABLE for an error of the database that remained after all attempts."""
    if isinstance(stale, Deadlock):
        return _busy()
    # The messages of a server may be in any language, but they all name the missing table.
    if "system_" in str(stale):
        return unavailable("database", NOT_MIGRATED)
    return without_success(deadlocked=False)


def without_success(*, deadlocked: bool) -> Refused:
    """Return SERVICE_UNAVAILABLE where no attempt was the last: each met a change or a deadlock."""
    return _busy() if deadlocked else unavailable("database", "Its structure keeps changing")


def _busy() -> Refused:
    return unavailable("database", "It is busy with other changes")
