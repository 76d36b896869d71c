"""Conditions of fields: what a form's other values make required, read only or hidden (decisions, section 6)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from cms import jsontext
from cms.errors import Refused, invalid_payload
from cms.query.rules.validation import PayloadRule, RuleContext, failures, parse_rule

_SWITCHES = ("required", "readonly", "hidden")


@dataclass(frozen=True, slots=True)
class Condition:
    """While the rule holds, the switches that it names replace the field's own."""

    rule: PayloadRule
    switches: Mapping[str, bool]


@dataclass(frozen=True, slots=True)
class FieldState:
    """What a field is for one item."""

    required: bool
    readonly: bool
    hidden: bool


def parse_conditions(meta: Mapping[str, object] | None) -> tuple[Condition, ...]:
    """Return the conditions of a field's meta; raises `Refused` INVALID_QUERY for a rule that is none.

    An entry without a rule never holds.
    """
    said = meta.get("conditions") if meta else None
    entries = said if isinstance(said, list) else []
    return tuple(
        _condition(entry) for entry in entries if isinstance(entry, Mapping) and entry.get("rule")
    )


def field_state(
    meta: Mapping[str, object] | None,
    conditions: Sequence[Condition],
    values: Mapping[str, object],
    given: RuleContext,
) -> FieldState:
    """Return the state of a field under the values of a whole item: the last condition that holds decides."""
    own = {name: bool(meta and meta.get(name)) for name in _SWITCHES}
    holding = (found for found in reversed(conditions) if not failures(found.rule, values, given))
    last = next(holding, None)
    return FieldState(**(own | dict(last.switches if last else {})))


def require_valid_rules(meta: Mapping[str, object]) -> None:
    """Raise `Refused` INVALID_PAYLOAD for rules of a field that nothing could keep; they come as JSON text."""
    told = {
        name: jsontext.loads(text)
        for name in ("validation", "conditions")
        if isinstance(text := meta.get(name), str)
    }
    entries = told.get("conditions")
    if entries is not None and not (
        isinstance(entries, list) and all(isinstance(one, Mapping) for one in entries)
    ):
        raise invalid_payload("conditions: it is an array of objects", field="meta.conditions")
    try:
        parse_rule(told.get("validation"))
        parse_conditions(told)
    except Refused as refused:
        fault = refused.problems[0].extensions
        raise invalid_payload(
            str(fault["reason"]), field=f"meta.{fault.get('parameter', 'validation')}"
        ) from None


def _condition(entry: Mapping[str, object]) -> Condition:
    switches = {name: value for name in _SWITCHES if isinstance(value := entry.get(name), bool)}
    return Condition(parse_rule(entry["rule"], parameter="conditions"), switches)
