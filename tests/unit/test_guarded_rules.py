"""Rules of several permissions united: equal ones count once, and no rule is every row."""

from __future__ import annotations

from decimal import Decimal

import pytest

from cms.access.guarded_rules import NO_ROWS, UNRESTRICTED, GuardedRule, all_of, any_of
from cms.query.language.ast import Constant, OperatorTest
from cms.query.plan.read_plan import All, AnyOf, Predicate


def rule(value: object) -> GuardedRule:
    """A rule with a predicate that equals no other, as those with converters do."""
    predicate: Predicate = AnyOf((All(()), AnyOf(())))
    return GuardedRule(OperatorTest("_eq", (Constant(value),)), predicate)


def test_rules_of_one_source_are_equal_and_have_one_hash() -> None:
    assert rule(1) == rule(1)
    assert hash(rule(1)) == hash(rule(1))
    assert rule(1) != rule(2)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (1, True),
        (0, False),
        (1, Decimal(1)),
        (Decimal("1.0"), Decimal("1.00")),
        ((1, "a"), (True, "a")),
        (("a",), "a"),
    ],
)
def test_rules_whose_literals_python_takes_for_equal_are_two(one: object, other: object) -> None:
    assert rule(one) != rule(other)
    for unite, kind in ((all_of, All), (any_of, AnyOf)):
        united = unite([rule(one), rule(other), rule(one)])
        assert united.predicate == kind((rule(one).predicate, rule(other).predicate))


def test_one_rule_stays_as_it_is() -> None:
    assert any_of([rule(1), rule(1)]) == rule(1)
    assert all_of([rule(1), UNRESTRICTED, rule(1)]) == rule(1)


def test_any_of_several_rules_is_an_alternative() -> None:
    united = any_of([rule(1), rule(2)])
    assert united.predicate == AnyOf((rule(1).predicate, rule(2).predicate))
    assert united == any_of([rule(1), rule(2), rule(1)])
    assert united != all_of([rule(1), rule(2)])


def test_one_permission_without_a_rule_is_for_every_row() -> None:
    assert any_of([rule(1), UNRESTRICTED]) == UNRESTRICTED
    assert all_of([]) == UNRESTRICTED


def test_no_permission_is_for_no_row() -> None:
    assert any_of([]) == NO_ROWS
    assert any_of([]).predicate == AnyOf(())
    assert all_of([UNRESTRICTED, NO_ROWS]) == NO_ROWS


def test_rules_that_compare_with_a_geometry_are_united_too() -> None:
    point = {"type": "Point", "coordinates": [1, 2]}
    assert any_of([rule(point), rule(point)]) == rule(point)
