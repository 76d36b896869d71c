"""Whether rules of permissions hide anything of what a condition reads."""

from __future__ import annotations

from cms.query.plan.inner_parts import inner_parts
from cms.query.plan.resolved import CallerPath, LinkStep, Value


def is_restricted(part: object) -> bool:
    """Tell whether rules hide values or rows that a part of a condition reads."""
    if any(rule is not None for rule in _rules_of(part)):
        return True
    return any(map(is_restricted, inner_parts(part)))


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
