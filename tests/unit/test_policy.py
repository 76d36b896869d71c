"""Rows of system_permissions as grants: what cannot be read allows nothing."""

from __future__ import annotations

import json
from decimal import Decimal

import pytest

from cms.access.policy import grant_of, grants_of, policy_of
from cms.query.language.ast import EVERYTHING, NOTHING
from cms.query.rules.payload_rules import parse_rule
from cms.query.rules.resolved_rules import resolve_rule
from cms.query.rules.validation import RuleContext, failures

ROW = {"id": 1, "collection": "articles", "action": "read", "fields": ["*"], "presets": None}
UNREADABLE: tuple[object, ...] = (
    {"size": {"_nonsense": 1}},
    {"_and": 5},
    "no rule",
    '{"size":',
    "",
    "  ",
    [],
    [{"size": {"_eq": 1}}],
    5,
    0,
    True,
    False,
)


@pytest.mark.parametrize("rule", UNREADABLE, ids=str)
def test_a_rule_that_cannot_be_read_shows_no_row(rule: object) -> None:
    grant = grant_of({**ROW, "permissions": rule, "validation": None})
    assert grant.rule == NOTHING
    assert grant.problem
    assert policy_of("role", [grant]).granted("articles", "read") == ()


@pytest.mark.parametrize("rule", UNREADABLE, ids=str)
def test_a_validation_that_cannot_be_read_refuses_every_item(rule: object) -> None:
    grant = grant_of({**ROW, "permissions": None, "validation": rule})
    assert grant.validation
    assert failures(resolve_rule(grant.validation), {"size": 1}, RuleContext())
    assert grant.problem
    assert policy_of("role", [grant]).granted("articles", "read") == ()


@pytest.mark.parametrize("presets", ["x", [], 5, False], ids=str)
def test_presets_that_cannot_be_read_leave_nothing_allowed(presets: object) -> None:
    grant = grant_of({**ROW, "permissions": None, "validation": None, "presets": presets})
    assert grant.problem
    assert grant.presets == {}


@pytest.mark.parametrize("rule", [None, {}, "{}"], ids=str)
def test_no_rule_is_every_row(rule: object) -> None:
    grant = grant_of({**ROW, "permissions": rule, "validation": rule})
    assert grant.rule == EVERYTHING
    assert grant.problem is None
    assert failures(resolve_rule(parse_rule(rule)), {}, RuleContext()) == []


@pytest.mark.parametrize(
    "value", ["\ud800", json.loads("[" * 300 + "]" * 300)], ids=["half", "deep"]
)
def test_presets_that_have_no_text_are_taken_and_equal_no_others(value: object) -> None:
    """A column of JSON holds them: whoever changes the database may have put them there."""
    row = {**ROW, "permissions": None, "validation": None, "presets": {"a": value}}
    grant = grant_of(row)
    assert grant.presets == {"a": value}
    assert grant.problem is None
    assert grant_of(row) != grant


def test_permissions_that_a_policy_has_are_not_parsed_again() -> None:
    rows = [
        {**ROW, "permissions": {"a": {"_eq": value}}, "validation": None}
        for value in (1, True, Decimal("1.0"))
    ]
    former = policy_of("role", grants_of(rows[:2]))
    first, second = former.granted("articles", "read")
    grants = grants_of(rows, former)
    assert grants[0] is first
    assert grants[1] is second
    # In Python all three rules are equal.
    assert grants[2] not in (first, second)
    assert first != second
