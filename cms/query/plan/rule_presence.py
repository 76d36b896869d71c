"""Whether rules of permissions hide anything of what a condition reads."""

from __future__ import annotations

from dataclasses import fields, is_dataclass

from cms.query.plan.resolved import CallerPath, LinkStep, Value


def has_rules(part: object) -> bool:
    """Tell whether rules hide values or rows that a part of a condition reads."""
    if isinstance(part, tuple):
        return any(map(has_rules, part))
    if any(rule is not None for rule in _rules_of(part)):
        return True
    # It goes through all fields of the dataclasses: no kind of condition can be missed.
    return is_dataclass(part) and any(
        has_rules(getattr(part, inner.name)) for inner in fields(part)
    )


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
