"""Conditions of fields: other values of an item make a field required, read only or hidden."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from cms import jsontext
from cms.errors import Refused, invalid_payload
from cms.query.rules.payload_rules import parse_rule
from cms.query.rules.resolved_rules import ResolvedRule, resolve_rule
from cms.query.rules.validation import RuleContext, failures
from cms.schema.model import Catalogue, Collection

RULE_SETTINGS = ("validation", "conditions")
"""The settings of a field that are rules."""

_SWITCHES = ("required", "readonly", "hidden")


@dataclass(frozen=True, slots=True)
class Condition:
    """While the rule holds, its switches replace those of the field."""

    rule: ResolvedRule
    switches: Mapping[str, bool]


@dataclass(frozen=True, slots=True)
class FieldState:
    """The state of a field for one item."""

    required: bool
    readonly: bool
    hidden: bool


def parse_conditions(
    meta: Mapping[str, object] | None,
    collection: Collection | None = None,
    catalogue: Catalogue | None = None,
) -> tuple[Condition, ...]:
    """Return the conditions of a field's meta, for the items of its collection.

    An entry without a rule never holds and is left out. Raises `Refused` INVALID_QUERY for a
    malformed rule.
    """
    # If somebody wrote the table by hand, the stored JSON may have any form: invalid entries are
    # left out, so that they fail no write.
    entries = meta.get("conditions") if meta else None
    if not isinstance(entries, list):
        return ()
    conditions: list[Condition] = []
    for entry in entries:
        if isinstance(entry, Mapping) and entry.get("rule"):
            conditions.append(_condition(entry, collection, catalogue))
    return tuple(conditions)


def field_state(
    meta: Mapping[str, object] | None,
    conditions: Sequence[Condition],
    values: Mapping[str, object],
    context: RuleContext,
) -> FieldState:
    """Return the state of a field under the values of a whole item.

    The last condition that holds decides.
    """
    switches = {name: bool(meta and meta.get(name)) for name in _SWITCHES}
    # Backwards, so that the first one that holds is the one that decides.
    for condition in reversed(conditions):
        if not failures(condition.rule, values, context):
            switches |= condition.switches
            break
    return FieldState(**switches)


def require_valid_rules(meta: Mapping[str, object]) -> None:
    """Raise `Refused` INVALID_PAYLOAD for rules of a field that cannot be read.

    In `meta` they are JSON texts.
    """
    settings: dict[str, object] = {}
    for name in RULE_SETTINGS:
        text = meta.get(name)
        if isinstance(text, str):
            settings[name] = jsontext.loads(text)
    if not _are_objects(settings.get("conditions")):
        raise invalid_payload("conditions: it is an array of objects", field="meta.conditions")
    # The names need not exist: fields may be added after the rules that name them.
    try:
        parse_rule(settings.get("validation"))
        parse_conditions(settings)
    except Refused as refused:
        extensions = refused.problems[0].extensions
        setting = extensions.get("parameter", "validation")
        raise invalid_payload(str(extensions["reason"]), field=f"meta.{setting}") from None


def _are_objects(entries: object) -> bool:
    """Tell whether a setting is absent or an array of objects."""
    if entries is None:
        return True
    return isinstance(entries, list) and all(isinstance(entry, Mapping) for entry in entries)


def _condition(
    entry: Mapping[str, object], collection: Collection | None, catalogue: Catalogue | None
) -> Condition:
    switches: dict[str, bool] = {}
    for name in _SWITCHES:
        value = entry.get(name)
        if isinstance(value, bool):
            switches[name] = value
    rule = parse_rule(entry["rule"], parameter="conditions")
    return Condition(resolve_rule(rule, collection, catalogue), switches)
