"""Every operator is complete: SQL and Python have it, with the same operands."""

from __future__ import annotations

import pytest

from cms.query.language.operators import OPERATORS, RULE_OPERATORS, OperandKind, Operator

ALL = {**OPERATORS, **RULE_OPERATORS}


@pytest.mark.parametrize("operator", ALL.values(), ids=list(ALL))
def test_an_operator_is_one_of_filters_or_rules_and_of_both_unless_it_cannot_be(
    operator: Operator,
) -> None:
    only_in_filters = operator.operand_kind is OperandKind.GEOMETRY
    only_in_rules = operator.operand_kind in (OperandKind.REGEX, OperandKind.FLAG)
    assert bool(operator.sql) is not only_in_rules
    assert (operator.compare is not None) is not only_in_filters


@pytest.mark.parametrize("operator", ALL.values(), ids=list(ALL))
def test_an_operator_has_an_opposite_exactly_if_it_takes_no_operand(operator: Operator) -> None:
    assert bool(operator.opposite) is (operator.operand_kind is OperandKind.NOTHING)
    if operator.opposite:
        opposite = ALL[operator.opposite]
        assert opposite.opposite == operator.name
        assert opposite.trait is operator.trait


@pytest.mark.parametrize("operator", OPERATORS.values(), ids=list(OPERATORS))
def test_the_sql_of_an_operator_has_a_place_for_each_operand(operator: Operator) -> None:
    placeholders = {OperandKind.NOTHING: 1, OperandKind.TWO: 3}.get(operator.operand_kind, 2)
    for template in filter(None, (operator.sql, operator.json_sql)):
        values = [f"<{number}>" for number in range(placeholders)]
        for number, value in enumerate(values):
            assert f"{{{number}}}" in template
            template = template.replace(f"{{{number}}}", value)
        assert f"{{{placeholders}}}" not in template


@pytest.mark.parametrize("name", OPERATORS)
def test_an_operator_with_an_n_is_the_negation_of_the_one_without(name: str) -> None:
    operator = OPERATORS[name]
    positive = OPERATORS.get(f"_{name[2:]}") if name.startswith("_n") else None
    if name in ("_null", "_nnull"):
        positive = OPERATORS["_null"] if name == "_nnull" else None
    assert operator.is_negated is (positive is not None)
    if positive:
        assert (positive.operand_kind, positive.trait, positive.pattern) == (
            operator.operand_kind,
            operator.trait,
            operator.pattern,
        )
