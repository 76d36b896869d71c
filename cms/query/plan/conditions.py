"""Filters planned: operators and functions fit the types, operands are placeholders."""

from __future__ import annotations

from collections.abc import Iterable

from cms.query.language.ast import And, Or
from cms.query.plan.guarded import AtItems, AtValue, FieldTest, GuardedFilter, GuardedTest
from cms.query.plan.json_tests import json_test
from cms.query.plan.read_plan import All, AnyOf, Exists, Predicate, Value
from cms.query.plan.typed_tests import typed_test, value_of


# {"year(published)": {"_gt": 2000}} of the query arrives as AtValue(year of published,
# GuardedTest("_gt", (Slot(0),))) and leaves as TypedTest(the value, the operator, (a placeholder
# that parses integers,)).
def predicate_of(filter: GuardedFilter) -> Predicate:
    """Return a filter as a condition that can be printed.

    Raises `Refused` INVALID_QUERY where an operator or a function does not fit.
    """
    match filter:
        case And(items):
            return All(tuple(map(predicate_of, items)))
        case Or(items):
            return AnyOf(tuple(map(predicate_of, items)))
        case AtValue(value, test):
            return _on_value(test, value_of(value))
        case AtItems(step, inner, negated):
            return Exists(step, predicate_of(inner), negated=negated)


def _on_value(test: FieldTest, value: Value) -> Predicate:
    match test:
        case And(items):
            return All(_all_on_value(items, value))
        case Or(items):
            return AnyOf(_all_on_value(items, value))
        case GuardedTest() if value.at is not None:
            return json_test(test, value)
        case GuardedTest():
            return typed_test(test, value)


def _all_on_value(tests: Iterable[FieldTest], value: Value) -> tuple[Predicate, ...]:
    return tuple(_on_value(test, value) for test in tests)
