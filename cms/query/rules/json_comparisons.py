"""Operators on values inside of JSON in Python; the same answers as `cms/query/plan/json_tests.py`.

A text, a number and a boolean each compare with their own type only.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from cms.query.language.operators import OperandKind, Operator
from cms.query.plan.json_tests import entries
from cms.query.rules.evaluate import fulfils
from cms.schema.types.field_type import Trait
from cms.schema.types.json_members import json_type

_SCALARS = ("string", "number", "boolean")


def fulfils_in_json(
    operator: Operator, value: Any, operands: Sequence[Any], comparables: Sequence[Any]
) -> bool:
    """Tell whether a value inside of JSON fulfils an operator.

    `comparables` are the operands as they are read for the comparison.
    """
    kind = operator.operand_kind
    if value is None or kind is OperandKind.NOTHING:
        return fulfils(operator, value, comparables)
    if None in comparables:  # a variable without a value
        return False
    if kind is OperandKind.PATTERN and isinstance(value, list):
        return _tests_entries(operator, value, operands[0])
    if kind in (OperandKind.PATTERN, OperandKind.REGEX):
        return isinstance(value, str) and fulfils(operator, value, comparables)
    if operator.trait is Trait.CASE:
        return isinstance(value, str) and fulfils(operator, value, [str(comparables[0])])
    if kind is OperandKind.LIST:
        return _fulfils_list(operator, value, comparables[0])
    own_type = json_type(value)
    if own_type not in _SCALARS or {own_type} != set(map(json_type, comparables)):
        return False
    return fulfils(operator, value, comparables)


def _fulfils_list(operator: Operator, value: Any, items: Sequence[Any]) -> bool:
    own_type = json_type(value)
    # To Python true is the number 1.
    items_of_type = [item for item in items if json_type(item) == own_type]
    # Between types nothing holds, while `_nin` of nothing holds for every value.
    if items and not items_of_type:
        return False
    return fulfils(operator, value, [items_of_type])


def _tests_entries(operator: Operator, values: list[Any], operand: object) -> bool:
    """Tell whether an array has an entry, or has none; other tests of texts hold for no array."""
    if operator.trait is not Trait.PARTS:
        return False
    wanted = list(map(_typed, entries(operand)))
    has_entry = any(_typed(value) in wanted for value in values)
    return has_entry != operator.is_negated


def _typed(value: object) -> tuple[str, object]:
    # To Python true is the number 1.
    return json_type(value), value
