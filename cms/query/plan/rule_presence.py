"""Whether rules of permissions hide anything of what a condition reads."""

from __future__ import annotations

from dataclasses import fields, is_dataclass

from cms.query.plan.resolved import CallerPath, LinkStep, Value


def has_rules(part: object) -> bool:
    """Tell whether rules hide values or rows that a part of a condition reads."""
    if isinstance(part, tuple):
        return any(map(has_rules, part))
    if _has_own_rule(part):
        return True
    if not is_dataclass(part):
        return False
    # It goes through all fields of the dataclasses: no kind of condition can be missed.
    inner_parts = [getattr(part, field.name) for field in fields(part)]
    return any(map(has_rules, inner_parts))


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
