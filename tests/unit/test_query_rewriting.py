"""Queries rewritten for the guard: groups at a relation taken apart, picks merged."""

from __future__ import annotations

import pytest

from cms.access.query_rewriting import distributed_over_items, merged_queries, quantifiers_alone
from cms.query.language.ast import (
    Aggregate,
    And,
    AtField,
    Constant,
    Filter,
    OperatorTest,
    Or,
    Pick,
    Query,
    Some,
)
from cms.schema.names import FieldName

TAGS = FieldName("tags")
NAME = FieldName("name")
IS_RED = AtField(NAME, OperatorTest("_eq", (Constant("red"),)))
IS_NEW = AtField(FieldName("new"), OperatorTest("_eq", (Constant(True),)))
SOME = Some(IS_RED)
NONE = Some(IS_RED, negated=True)


@pytest.mark.parametrize(
    ("group", "expected"),
    [
        # Tests of one and the same item stay together.
        (And((IS_RED, IS_NEW)), And((AtField(TAGS, And((IS_RED, IS_NEW))),))),
        (Or((IS_RED, IS_NEW)), Or((AtField(TAGS, Or((IS_RED, IS_NEW))),))),
        (And((SOME, NONE)), And((AtField(TAGS, SOME), AtField(TAGS, NONE)))),
        (
            And((IS_RED, SOME, IS_NEW)),
            And((AtField(TAGS, SOME), AtField(TAGS, And((IS_RED, IS_NEW))))),
        ),
        (
            And((IS_RED, Or((SOME, IS_NEW)))),
            And((AtField(TAGS, Or((SOME, IS_NEW))), AtField(TAGS, And((IS_RED,))))),
        ),
        (And(()), And(())),
    ],
)
def test_quantifiers_stand_alone_and_other_tests_together(
    group: And[Filter] | Or[Filter], expected: Filter
) -> None:
    assert quantifiers_alone(TAGS, group) == expected


def test_each_test_of_a_group_at_a_to_one_relation_stands_alone() -> None:
    expected = Or((AtField(TAGS, IS_RED), AtField(TAGS, IS_NEW)))
    assert distributed_over_items(TAGS, Or((IS_RED, IS_NEW))) == expected


def test_merged_queries_pick_what_either_picks_and_keep_the_filter_of_the_first() -> None:
    named = Query(picks=(Pick("name", NAME),), filter=IS_RED)
    starred = Query(picks=(Pick("new", FieldName("new")),), filter=IS_NEW)
    merged = merged_queries(named, starred)
    assert merged == Query(picks=(*starred.picks, *named.picks), filter=IS_RED)


def test_nothing_is_added_to_groups_and_aggregates() -> None:
    counted = Query(picks=(), aggregates=(Aggregate("count", None),))
    grouped = Query(picks=(), groups=(NAME,))
    for query in (counted, grouped):
        assert merged_queries(query, Query()) == query, query
    assert merged_queries(None, counted) == counted
    assert merged_queries(counted, None) == counted
