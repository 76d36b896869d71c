"""Whether rules of permissions hide anything of what a condition reads."""

from __future__ import annotations

from dataclasses import fields

from cms.query.plan.resolved import (
    All,
    AnyOf,
    CallerPath,
    Exists,
    LinkStep,
    RevisionItem,
    SearchMatch,
    TypedTest,
    Value,
)

_PARTS = (All, AnyOf, TypedTest, Exists, SearchMatch, RevisionItem, CallerPath, LinkStep, Value)
"""The types of which conditions consist, besides placeholders."""


def has_rules(part: object) -> bool:
    """Tell whether rules hide values or rows that a part of a condition reads."""
    if isinstance(part, tuple):
        return any(map(has_rules, part))
    if any(rule is not None for rule in _rules_of(part)):
        return True
    if not isinstance(part, _PARTS):
        return False
    # Conditions are frozen dataclasses: no kind of them can be missed.
    return any(has_rules(getattr(part, inner.name)) for inner in fields(part))


def _rules_of(part: object) -> tuple[object, ...]:
    match part:
        case Value():
            return part.when, part.members
        case LinkStep():
            return part.when, part.allowed
        case CallerPath():
            return (part.allowed,)
        case _:
            return ()
