"""Rules on payloads, parsed: validations of fields and permissions, rules of conditions.

A rule is a filter like any other. It is about the values of a payload, never about the database.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from decimal import Decimal

from cms.query.language.ast import AtField, Filter, has_item_test
from cms.query.language.filters import parse_filter, require_not_blank
from cms.query.language.literals import RuleLiterals
from cms.query.language.operators import RULE_OPERATORS
from cms.schema.names import FieldName


@dataclass(frozen=True, slots=True)
class PayloadRule:
    """A parsed rule, and the message of a payload that breaks it."""

    filter: Filter
    message: str | None = None


def parse_rule(
    value: object, *, parameter: str = "validation", message: str | None = None
) -> PayloadRule:
    """Return a rule given as nested dicts; None is no rule.

    Raises `Refused` INVALID_QUERY with the path to the problem in the rule.
    """
    filter_value: object = require_not_blank(_exact(value), parameter) if value is not None else {}
    parsed = parse_filter(
        filter_value, RuleLiterals(), parameter=parameter, operators=RULE_OPERATORS
    )
    return PayloadRule(parsed, message)


def parse_field_rule(name: str, value: object, *, message: str | None = None) -> PayloadRule:
    """Return the `validation` of a field; operators without a field name test the field itself."""
    rule = parse_rule(value, message=message)
    # {"_regex": "^a"} on the field `title` means {"title": {"_regex": "^a"}}; {"other": {…}} names
    # a field already and stays as it is.
    if has_item_test(rule.filter):
        return rule
    return replace(rule, filter=AtField(FieldName(name), rule.filter))


def _exact(value: object) -> object:
    """Return a value with decimals for floats.

    Stored rules come with floats; all other numbers in the service keep all their digits.
    """
    match value:
        case float():
            # repr() gives the shortest text that reads as the same float: 0.1 becomes the decimal
            # 0.1, and not the 55 digits that the float holds.
            return Decimal(repr(value))
        case dict():
            return {key: _exact(item) for key, item in value.items()}
        case list():
            return [_exact(item) for item in value]
        case _:
            return value
