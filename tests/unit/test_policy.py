"""Rows of system_permissions as grants: what cannot be read allows nothing."""

from __future__ import annotations

import json

import pytest

from cms.access.policy import grant_of, grants_of, policy_name, policy_of
from cms.query.language.ast import EVERYTHING, NOTHING
from cms.query.rules.payload_rules import parse_rule
from cms.query.rules.resolved_rules import resolve_rule
from cms.query.rules.validation import RuleContext, failures

ROW = {"id": 1, "collection": "articles", "action": "read", "fields": ["*"], "presets": None}
NO_RULES = {"permissions": None, "validation": None}
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
def test_presets_that_have_no_text_are_taken(value: object) -> None:
    """A column of JSON holds them: whoever changes the database may have put them there."""
    row = {**ROW, "permissions": None, "validation": None, "presets": {"a": value}}
    grant = grant_of(row)
    assert grant.presets == {"a": value}
    assert grant.problem is None


def test_permissions_that_are_no_list_are_none() -> None:
    assert grants_of('{"a": 1}') == []
    assert [grant.id for grant in grants_of(json.dumps([ROW | NO_RULES]))] == [1]


def test_what_python_takes_for_equal_are_other_names() -> None:
    assert len({policy_name(text) for text in ("1", "true", "1.0", "1")}) == 3
