"""Whether rules of permissions hide values or rows that a condition reads."""

from __future__ import annotations

from cms.query.plan.inner_parts import inner_parts
from cms.query.plan.read_plan import CallerPath, LinkStep, Value


def is_restricted(part: object) -> bool:
    """Tell whether rules hide values or rows that a part of a condition reads."""
    return _has_own_rule(part) or any(map(is_restricted, inner_parts(part)))


def _has_own_rule(part: object) -> bool:
    match part:
        case Value():
            return part.when is not None or part.members is not None
        case LinkStep():
            return part.when is not None or part.allowed is not None
        case CallerPath():
            return part.allowed is not None
        case _:
            return False
