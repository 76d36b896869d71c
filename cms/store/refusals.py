"""A refusal completed with what else the database refuses, where it has an inquiry."""

from __future__ import annotations

from collections.abc import Callable

from cms.database.connections import Row
from cms.errors import MAX_PROBLEMS, STATUS, Problem, Refused
from cms.fragment import Fragment

RunQuestion = Callable[[Fragment], list[Row]]
"""Runs a statement by itself, so that one that fails undoes nothing else."""

_COMPLETABLE_STATUSES = {STATUS["INVALID_PAYLOAD"], STATUS["FAILED_VALIDATION"]}
_IDENTIFYING_KEYS = ("operation", "field", "constraint")
_POSITION_KEYS = ("operation", "index", "path", "field", "fields")


def with_inquiry(refused: Refused, run_question: RunQuestion) -> Refused:
    """Return a refusal with the problems that its inquiry finds."""
    if (
        refused.inquiry is None
        or len(refused.problems) >= MAX_PROBLEMS
        or not _is_about_values(refused)
    ):
        return refused
    later = refused.inquiry(run_question)
    kept = [
        problem
        for problem in refused.problems
        if not any(_is_more_specific(other, problem) for other in later)
    ]
    added = [problem for problem in later if not any(_is_known(problem, known) for known in kept)]
    # Many items may have been changed by one body, whose problem comes once for each of them.
    distinct = list({repr(problem): problem for problem in added}.values())
    problems = sorted([*kept, *distinct], key=_index)
    return Refused(problems[:MAX_PROBLEMS], total=refused.total + len(distinct))


def _is_about_values(refused: Refused) -> bool:
    return all(STATUS[problem.code] in _COMPLETABLE_STATUSES for problem in refused.problems)


def _is_known(other: Problem, known: Problem) -> bool:
    """Tell whether the known problem is of the same value, or of the same check of several."""
    if any(known.extensions.get(name) != other.extensions.get(name) for name in _POSITION_KEYS):
        return False
    return "field" in known.extensions or (known.code, known.message) == (other.code, other.message)


def _is_more_specific(other: Problem, known: Problem) -> bool:
    """Tell whether a problem names the value of a known one that does not name it."""
    if "path" in known.extensions:
        return False
    if (known.code, known.message) != (other.code, other.message):
        return False
    return all(
        known.extensions.get(name) in (None, other.extensions.get(name))
        for name in _IDENTIFYING_KEYS
    )


def _index(problem: Problem) -> int:
    index = problem.extensions.get("index")
    return index if isinstance(index, int) else 0
