"""What others than administrators are told of a write that fails: nothing of what is hidden from them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

from cms.access.policy import Policy
from cms.access.structure import ACTIONS
from cms.errors import Problem, Refused, forbidden

_FIELD_EXTENSIONS = {"field", "fields", "constraint", "rule", "value", "path"}
"""What a problem says of fields."""

_STORED_RULES = {"validation", "conditions"}
"""Where a rule stands that somebody has stored: what cannot be read of it may name any field."""


@contextmanager
def redacted_problems(policy: Policy) -> Iterator[None]:
    """Refuse what is refused inside as this caller may hear it.

    A field that no permission of the caller speaks of is not named: what the service itself minds there is FORBIDDEN
    as a whole, and of what the database minds only the code is left.
    """
    try:
        yield
    except Refused as refused:
        if policy.is_admin:
            raise
        raise _redacted(refused, policy) from refused


def _redacted(refused: Refused, policy: Policy) -> Refused:
    problems = [(problem, _hidden_extensions(problem, policy)) for problem in refused.problems]
    if any(
        problem.code == "FAILED_VALIDATION" and "field" in hidden for problem, hidden in problems
    ):
        return forbidden()
    if any(problem.extensions.get("parameter") in _STORED_RULES for problem, _ in problems):
        return forbidden()
    return refused.map_problems(
        lambda problem: _without(problem, _hidden_extensions(problem, policy))
    )


def _hidden_extensions(problem: Problem, policy: Policy) -> set[str]:
    """Return what a problem must not name; the name of a constraint may hold those of hidden fields."""
    collection, field = problem.extensions.get("collection"), problem.extensions.get("field")
    if collection is None:
        return set()
    grants = [grant for action in ACTIONS for grant in policy.granted(str(collection), action)]
    if not grants:
        return {"collection", *_FIELD_EXTENSIONS}
    if field is None:
        return {"constraint", "rule", "fields"}  # a rule of several fields names them all
    known = any(grant.covers(str(field)) for grant in grants)
    return {"constraint"} if known else _FIELD_EXTENSIONS


def _without(problem: Problem, names: set[str]) -> Problem:
    return replace(
        problem,
        extensions={key: said for key, said in problem.extensions.items() if key not in names},
    )
