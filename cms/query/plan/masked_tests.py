"""Tests of masked fields: the rule stands beside the test, where indexes serve both."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import NamedTuple

from cms.query.language.python_comparisons import never
from cms.query.plan.read_plan import All, AnyOf, Exists, Predicate, SearchMatch, TypedTest, Value
from cms.schema.types.field_type import Trait

Combine = Callable[[tuple[Predicate, ...]], Predicate]


class _MaskedTest(NamedTuple):
    """A test, and the rule of the rows in which it may hold; None is all rows."""

    rule: Predicate | None
    test: Predicate


class _RuleGroup(NamedTuple):
    """Tests that may hold in the rows of one rule."""

    rule: Predicate | None
    tests: list[Predicate]


def with_rules_beside(condition: Predicate) -> Predicate:
    """Return a condition on rows in which the rule of a masked field stands beside its tests.

    No index serves `CASE WHEN rule THEN price END > 5`, while `rule AND price > 5` holds in the
    same rows. Tests of fields with one rule share it.
    """
    match condition:
        case All(items):
            return All(_grouped(items, All))
        case AnyOf(items):
            return AnyOf(_grouped(items, AnyOf))
        case Exists(where=where):
            return replace(condition, where=with_rules_beside(where))
        case _ if _is_masked(condition):
            return All(_grouped((condition,), All))
        case _:
            return condition


def _grouped(items: Iterable[Predicate], combine: Combine) -> tuple[Predicate, ...]:
    """Return conditions with the tests of one rule as one, at the place of the first of them."""
    # By the identity of the rule, as predicates cannot be compared; what has no rule is alone.
    groups: dict[object, _RuleGroup] = {}
    for number, item in enumerate(items):
        masked = _masked_test(item)
        key: object = id(masked.rule)
        if masked.rule is None:
            key = ("without a rule", number)
        group = groups.setdefault(key, _RuleGroup(masked.rule, []))
        group.tests.append(masked.test)
    return tuple(_united(group, combine) for group in groups.values())


def _united(group: _RuleGroup, combine: Combine) -> Predicate:
    united = group.tests[0]
    if len(group.tests) > 1:
        united = combine(tuple(group.tests))
    if group.rule is None:
        return united
    return All((group.rule, united))


def _masked_test(condition: Predicate) -> _MaskedTest:
    if isinstance(condition, TypedTest | SearchMatch) and _is_masked(condition):
        value = replace(condition.value, when=None)
        return _MaskedTest(condition.value.when, replace(condition, value=value))
    return _MaskedTest(None, with_rules_beside(condition))


def _is_masked(condition: Predicate) -> bool:
    """Tell whether a test is of a masked field, and holds for no null.

    Where null fulfils the test, as `_null` does, it also holds in rows that hide the field.
    """
    match condition:
        case TypedTest(value, operator):
            return _has_mask(value) and operator.compare_null is never
        case SearchMatch(value):
            return _has_mask(value)
        case _:
            return False


def _has_mask(value: Value) -> bool:
    if value.when is None or value.function is not None or value.members is not None:
        return False
    # A test that looks into a value might fail for a hidden value, and the failure would reveal it.
    return not value.field.type.traits & {Trait.JSON, Trait.GEOMETRY}
