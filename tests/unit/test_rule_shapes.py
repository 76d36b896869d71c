"""How rules of permissions are printed: masks beside tests, alternatives over one relation."""

from __future__ import annotations

from typing import Any

import pytest

from cms.access.guard import QueryBounds, guard
from cms.access.policy import Policy, StoredGrant
from cms.query.language.ast import EVERYTHING
from cms.query.language.filters import parse_filter
from cms.query.language.literals import RuleLiterals
from cms.query.language.paging import PageSizes
from cms.query.language.parse import parse_query_string
from cms.query.plan.plan import plan
from cms.query.sql.statement import finish_statement
from tests.unit.library import LIBRARY

ME = {"author": {"name": {"_eq": "me"}}}
FIVE = {"author": {"id": {"_eq": 5}}}
SIX = {"author": {"id": {"_eq": 6}}}


def grant(*fields: str, rule: Any = None) -> StoredGrant:
    filters = parse_filter(rule, RuleLiterals()) if rule else EVERYTHING
    return StoredGrant("books", "read", frozenset(fields), {}, rule=filters)


def statement(query_string: str, *grants: StoredGrant) -> str:
    page = PageSizes().default_window
    guarded = guard(
        parse_query_string(query_string, PageSizes()).query,
        "books",
        catalogue=LIBRARY,
        policy=Policy(name="members", grants={("books", "read"): grants}),
        bounds=QueryBounds(10, page),
    )
    return finish_statement(plan(guarded)).text


def author(where: str) -> str:
    return f'EXISTS (SELECT FROM "authors" AS t1 WHERE t1."id" = t0."author" AND {where})'


def named(number: int) -> str:
    return author(f't1."name" = ${number}::text')


def lookup(number: int) -> str:
    return (
        f't0."author" = (SELECT t1."id" FROM "authors" AS t1 '
        f'WHERE t1."id" = ${number}::bigint LIMIT 1)'
    )


ALTERNATIVES = [
    # One relation: a sub-select that stands alone.
    (
        [{"author": {"name": {"_eq": "a"}}}, {"author": {"agent": {"_eq": 5}}}],
        author('(t1."name" = $1::text OR t1."agent" = $2::bigint)'),
    ),
    ([FIVE, SIX], author('(t1."id" = $1::bigint OR t1."id" = $2::bigint)')),
    ([{"_or": [ME, FIVE]}], author('(t1."name" = $1::text OR t1."id" = $2::bigint)')),
    # Beside anything else, one row is looked up, and others are tested row by row.
    ([FIVE, {"country": {"_eq": 1}}], f'({lookup(1)} OR t0."country" = $2::bigint)'),
    (
        [FIVE, SIX, {"country": {"_eq": 1}}],
        f'({lookup(1)} OR {lookup(2)} OR t0."country" = $3::bigint)',
    ),
    (
        [ME, {"country": {"_eq": 1}}],
        f'({named(1)} OR t0."country" = $2::bigint)',
    ),
    # Another relation to the same collection is another step.
    (
        [{"pages": {"text": {"_eq": "x"}}}, ME],
        '(EXISTS (SELECT FROM "pages" AS t1 WHERE t1."book" = t0."id" AND t1."text" = $1::text) '
        f"OR {named(2)})",
    ),
    # No related item that fits is no alternative of one that does.
    (
        [{"pages": {"_none": {"text": {"_eq": "x"}}}}, {"pages": {"text": {"_eq": "y"}}}],
        '(NOT EXISTS (SELECT FROM "pages" AS t1 WHERE t1."book" = t0."id" AND t1."text" = '
        '$1::text) OR EXISTS (SELECT FROM "pages" AS t1 WHERE t1."book" = t0."id" AND t1."text" '
        "= $2::text))",
    ),
]


@pytest.mark.parametrize(("rules", "expected"), ALTERNATIVES)
def test_alternatives_of_rules(rules: list[Any], expected: str) -> None:
    grants = [grant("*", rule=rule) for rule in rules]
    printed = statement("fields=id", *grants)
    condition = printed.partition(" WHERE ")[2].removesuffix(
        ' ORDER BY t0."id" LIMIT 100) AS r ON TRUE'
    )
    assert condition == expected


MASKED = (grant("id"), grant("title", "sequel", "topic", rule=ME))
TESTS = [
    ("filter[title][_eq]=x", f'({named(1)} AND t0."title" = $2::text)'),
    (
        "filter[title][_eq]=x&filter[sequel][_gt]=3",
        f'({named(1)} AND (t0."title" = $2::text AND t0."sequel" > $3::bigint))',
    ),
    (
        "filter[_or][0][title]=x&filter[_or][1][sequel]=3",
        f'({named(1)} AND (t0."title" = $2::text OR t0."sequel" = $3::bigint))',
    ),
    # Null fulfils these, and hidden values are null.
    (
        "filter[title][_null]=true",
        f'CASE WHEN {named(1)} THEN t0."title" END IS NULL',
    ),
    (
        "filter[title][_nin]=x",
        f'CASE WHEN {named(1)} THEN t0."title" END <> ALL ($2::text[])',
    ),
]


@pytest.mark.parametrize(("query", "expected"), TESTS)
def test_the_rule_of_a_field_stands_beside_its_tests(query: str, expected: str) -> None:
    assert expected in statement(f"fields=id&{query}", *MASKED)


def test_each_rule_stands_beside_the_tests_of_its_own_fields() -> None:
    five = author('t1."id" = $3::bigint')
    printed = statement(
        "fields=id&filter[title][_eq]=x&filter[country][_eq]=3",
        grant("id"),
        grant("title", rule=ME),
        grant("country", rule=FIVE),
    )
    expected = (
        f'(({named(1)} AND t0."title" = $2::text) AND ({five} AND t0."country" = $4::bigint))'
    )
    assert expected in printed


def test_two_outputs_share_a_rule_that_leads_to_other_rows() -> None:
    printed = statement("fields=title,sequel", *MASKED)
    assert printed.count("EXISTS") == 1
    assert printed.count('CASE WHEN t0."_mask0" THEN') == 2


def test_a_rule_of_several_outputs_is_a_column_of_the_rows() -> None:
    printed = statement("fields=id,title,sequel,topic", *MASKED)
    assert printed.count("EXISTS") == 1
    assert (
        f'FROM (SELECT t0.*, {named(1)} AS "_mask0" FROM "books" AS t0 '
        'ORDER BY t0."id" LIMIT 100 OFFSET 0) AS t0' in printed
    )
    assert printed.count('CASE WHEN t0."_mask0" THEN') == 3


def test_a_rule_of_one_output_stays_with_it() -> None:
    assert "_mask" not in statement("fields=id,title", *MASKED)


def test_rules_of_overlapping_permissions_are_shared_by_their_parts() -> None:
    grants = (
        grant("id"),
        grant("title", "sequel", "topic", rule=ME),
        grant("sequel", "topic", "country", rule=FIVE),
    )
    printed = statement("", *grants)
    assert printed.count('AS "_mask') == 2
    assert printed.count("EXISTS") == 2
    assert 'CASE WHEN (t0."_mask0" OR t0."_mask1") THEN t0."sequel" END' in printed
