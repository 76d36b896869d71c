"""Problems of failed writes, without the names that the caller may not know."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

from cms.access.policy import Policy, is_covered
from cms.access.visible_structure import grants_on
from cms.errors import Problem, Refused, forbidden
from cms.query.rules.field_conditions import RULE_SETTINGS

_FIELD_EXTENSIONS = {"field", "fields", "constraint", "rule", "value", "path"}
"""Extensions of a problem that may name fields or hold their values."""


@contextmanager
def redacted_problems(policy: Policy) -> Iterator[None]:
    """Remove what a caller may not know from refusals that are raised inside: see `redacted`."""
    try:
        yield
    except Refused as refused:
        raise redacted(refused, policy) from None


def redacted(refused: Refused, policy: Policy) -> Refused:
    """Return a refusal without the names that a caller with this policy may not know.

    A failed rule of a hidden field, or a stored rule that is invalid, makes the whole refusal a
    FORBIDDEN. Any other problem loses the extensions that name hidden fields and collections or
    hold their values. Administrators get every refusal as it is.
    """
    if policy.is_admin:
        return refused
    for problem in refused.problems:
        # The problem of a stored rule may name any field.
        if problem.extensions.get("parameter") in RULE_SETTINGS:
            return forbidden()
        # The message of a failed rule is free text of an administrator, who may name the field.
        if problem.code == "FAILED_VALIDATION" and "field" in _hidden_extensions(problem, policy):
            return forbidden()
    return refused.map_problems(
        lambda problem: _without(problem, _hidden_extensions(problem, policy))
    )


def _hidden_extensions(problem: Problem, policy: Policy) -> set[str]:
    """Return the extensions that a problem must not have.

    The name of a constraint goes with every field, because it may hold the names of hidden ones.
    """
    collection = problem.extensions.get("collection")
    field = problem.extensions.get("field")
    if collection is None:
        return set()
    grants = grants_on(policy, str(collection))
    if not grants:
        return {"collection", *_FIELD_EXTENSIONS}
    if field is None:
        return {"constraint", "rule", "fields"}  # a rule of several fields names them all
    if is_covered(str(field), grants):
        return {"constraint"}
    return _FIELD_EXTENSIONS


def _without(problem: Problem, names: set[str]) -> Problem:
    extensions = {key: value for key, value in problem.extensions.items() if key not in names}
    return replace(problem, extensions=extensions)
