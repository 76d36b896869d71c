"""Rules tried on payloads: what is reported of a broken one, what is left
alone, and what depends on a condition.
"""

from __future__ import annotations

from typing import Any, cast

import pytest

from cms.errors import Refused
from cms.query.language.ast import Caller, CallerValue
from cms.query.rules.field_conditions import field_state, parse_conditions
from cms.query.rules.payload_rules import parse_field_rule, parse_rule
from cms.query.rules.resolved_rules import ResolvedRule, resolve_rule
from cms.query.rules.validation import RuleContext, failures
from cms.regex import compile_regex
from cms.schema.model import Catalogue, Collection, Field, Kind, Relation
from cms.schema.names import FieldName
from cms.schema.types import TYPES
from tests.unit.library import column

Json = dict[str, Any]

KINDS = {
    "id": "integer",
    "title": "string",
    "price": "decimal",
    "data": "json",
    "author": "integer",
    "day": "date",
}


def collection(name: str, kinds: Json, *aliases: str) -> Collection:
    fields = {
        key: Field(name, key, TYPES[kind], column=column(key, kind)) for key, kind in kinds.items()
    }
    fields |= {key: Field(name, key, TYPES["alias"]) for key in aliases}
    return Collection(name, Kind.TABLE, fields, fields["id"])


ARTICLES = collection("articles", KINDS)
AUTHORS = collection("authors", {"id": "integer", "name": "string"}, "articles")
CATALOGUE = Catalogue.of(
    1,
    {"articles": ARTICLES, "authors": AUTHORS},
    (Relation("articles", "author", "authors", "articles"),),
)
NEW = RuleContext()
CHANGE = RuleContext(is_creation=False)


def resolved(rule: Json, collection: Collection | None = ARTICLES) -> ResolvedRule:
    return resolve_rule(parse_rule(rule), collection, CATALOGUE)


def failed(
    rule: Json,
    values: Json,
    context: RuleContext = NEW,
    *,
    collection: Collection | None = ARTICLES,
) -> list[tuple[str, str]]:
    """Return the path and the type of each failure."""
    problems = failures(resolved(rule, collection), values, context)
    assert all(problem.code == "FAILED_VALIDATION" for problem in problems)
    return [
        (".".join(cast(Any, problem.extensions["path"])), cast(str, problem.extensions["type"]))
        for problem in problems
    ]


@pytest.mark.parametrize(
    ("test", "operand"),
    [
        ({"_eq": "b"}, {"type": "eq", "valid": "b"}),
        ({"_nin": ["a", "b"]}, {"type": "nin", "invalid": ["a", "b"]}),
        ({"_contains": "b"}, {"type": "contains", "substring": "b"}),
        ({"_nstarts_with": "a"}, {"type": "nstarts_with", "substring": "a"}),
        ({"_between": ["b", "c"]}, {"type": "between", "valid": ["b", "c"]}),
        ({"_regex": "^b$"}, {"type": "regex", "valid": "^b$"}),
        ({"_null": True}, {"type": "null"}),
        ({"_submitted": False}, {"type": "submitted"}),
    ],
)
def test_a_failure_has_the_test_its_operand_and_its_path(test: Json, operand: Json) -> None:
    (problem,) = failures(resolved({"title": test}), {"title": "a"}, NEW)
    assert problem.extensions == {
        "collection": "articles",
        "field": "title",
        "path": ["title"],
        **operand,
    }


def test_every_failed_test_is_reported() -> None:
    rule = {"title": {"_contains": "b", "_starts_with": "a"}, "price": {"_gt": 5}}
    assert failed(rule, {"title": "x", "price": 5}) == [
        ("title", "contains"),
        ("title", "starts_with"),
        ("price", "gt"),
    ]


def test_of_alternatives_all_are_reported_when_none_holds() -> None:
    rule = {"_or": [{"title": {"_eq": "a"}}, {"price": {"_lt": 1}}]}
    assert failed(rule, {"title": "b", "price": 3}) == [("title", "eq"), ("price", "lt")]
    assert failed(rule, {"title": "b", "price": 0}) == []
    assert failed({"_or": []}, {}) == [("", "or")]
    assert failed({"_and": []}, {}) == []


def test_the_fields_own_message_is_answered() -> None:
    parsed = parse_field_rule("title", {"_regex": "^[a-z]+$"}, message="Small mails, please.")
    rule = resolve_rule(parsed, ARTICLES, CATALOGUE)
    (problem,) = failures(rule, {"title": "A"}, NEW)
    assert problem.message == "Small mails, please."
    assert failures(rule, {"title": "a"}, NEW) == []


def test_a_field_that_is_not_there_is_null_in_a_new_item_and_untouched_in_a_change() -> None:
    for rule in ({"title": {"_nnull": True}}, {"title": {"_eq": "a"}}):
        assert failed(rule, {}, NEW)
        assert failed(rule, {}, CHANGE) == []
        assert failed(rule, {"title": None}, CHANGE)
    assert failed({"title": {"_submitted": True}}, {}, CHANGE) == [("title", "submitted")]
    assert failed({"title": {"_submitted": True}}, {"title": None}, CHANGE) == []
    assert failed({"title": {"_submitted": False}}, {}, NEW) == []


def test_numbers_and_dates_are_compared_as_such() -> None:
    assert failed({"price": {"_lt": "10"}}, {"price": "9"}) == []
    assert failed({"price": {"_gt": 1.5}}, {"price": "1.50"}) == [("price", "gt")]
    assert failed({"day": {"_lt": "$NOW"}}, {"day": "2020-01-01"}) == []
    assert failed({"day": {"_gt": "$NOW(-1 day)"}}, {"day": "2020-01-01"}) == [("day", "gt")]
    assert failed({"year(day)": {"_eq": 2020}}, {"day": "2020-01-01"}) == []


def test_the_inside_of_a_json_value_is_reported_by_its_path() -> None:
    rule = {"data": {"size": {"width": {"_gt": 5}}, "tags": {"_contains": "a"}}}
    assert failed(rule, {"data": {"size": {"width": 6}, "tags": ["a"]}}) == []
    assert failed(rule, {"data": {"size": {"width": 5}}}, CHANGE) == [
        ("data.size.width", "gt"),
        ("data.tags", "contains"),
    ]
    assert failed({"data": {"_some": {"n": {"_eq": 1}}}}, {"data": [{"n": 2}, {"n": 1}]}) == []
    assert failed({"data": {"n": {"_eq": 1}}}, {"data": [{"n": 2}]}) == [("data", "some")]
    assert failed({"data": {"_none": {"n": {"_eq": 1}}}}, {"data": [{"n": 1}]}) == [
        ("data", "none")
    ]


def test_related_objects_of_a_payload_are_read_by_their_own_fields() -> None:
    assert failed({"author": {"name": {"_eq": "A"}}}, {"author": {"name": "B"}}) == [
        ("author.name", "eq")
    ]
    assert failed({"author": {"name": {"_eq": "A"}}}, {"author": 7}, CHANGE) == []
    assert failed({"author": {"_nnull": True}}, {"author": {"name": "B"}}) == []
    assert (
        failed(
            {"articles": {"title": {"_eq": "a"}}},
            {"articles": [{"title": "b"}, {"title": "a"}]},
            collection=AUTHORS,
        )
        == []
    )
    assert failed(
        {"articles": {"_nempty": True}, "count(articles)": {"_lt": 2}},
        {"articles": [1, 2]},
        collection=AUTHORS,
    ) == [("articles", "lt")]


def test_related_objects_contain_no_number() -> None:
    rule = {"author": {"_contains": 5}}
    assert failed(rule, {"author": {"name": "B"}}) == [("author", "contains")]


def test_without_fields_values_are_compared_by_what_they_are() -> None:
    assert failed({"a": {"_gt": 9}}, {"a": "10"}, collection=None) == []
    assert failed({"a": {"_gt": "9"}}, {"a": "10"}, collection=None) == [("a", "gt")]
    assert failed({"a": {"b": {"_eq": True}}}, {"a": {"b": True}}, collection=None) == []
    assert failed({"a": {"_eq": 5}}, {"a": "x"}, collection=None) == [("a", "eq")]
    assert failed({"at": {"_lt": "$NOW"}}, {"at": "2020-01-01T00:00:00Z"}, collection=None) == []


def test_what_a_variable_stands_for_is_not_revealed() -> None:
    rule = resolved({"title": {"_eq": "$CURRENT_USER"}})
    (problem,) = failures(rule, {"title": "x"}, RuleContext(user="u"))
    assert "valid" not in problem.extensions
    (problem,) = failures(resolved({"title": {"_eq": "u"}}), {"title": "x"}, NEW)
    assert problem.extensions["valid"] == "u"


@pytest.mark.parametrize(
    ("test", "holds"),
    [({"_nin": []}, True), ({"_in": []}, False), ({"_nin": [1]}, False), ({"_nin": ["b"]}, True)],
)
def test_a_value_in_json_is_only_unequal_to_values_of_its_type(test: Json, *, holds: bool) -> None:
    problems = failures(resolved({"data.kind": test}), {"data": {"kind": "a"}}, NEW)
    assert (problems == []) is holds


def test_variables_stand_for_the_caller() -> None:
    rule = resolved(
        {"title": {"_eq": "$CURRENT_USER.email"}, "author": {"_in": ["$CURRENT_USER.articles.id"]}}
    )
    paths = rule.caller_paths
    email = (FieldName("email"),)
    articles = (FieldName("articles"), FieldName("id"))
    assert paths == {CallerValue(Caller.USER, email), CallerValue(Caller.USER, articles)}
    known = {path: ["a@b.c"] if path.path == email else [1, 2] for path in paths}
    under = RuleContext(user="u", caller_values=known)
    assert failures(rule, {"title": "a@b.c", "author": 2}, under) == []
    assert len(failures(rule, {"title": "x", "author": 3}, under)) == 2
    assert len(failures(rule, {"title": "a@b.c", "author": 2}, RuleContext())) == 2


@pytest.mark.parametrize(
    "rule",
    [
        {"price": {"_contains": "a"}},
        {"price": {"_gt": "a"}},
        {"nowhere": {"_eq": 1}},
        {"year(title)": {"_eq": 1}},
        {"_eq": 1},
    ],
)
def test_a_rule_that_does_not_fit_its_collection_is_reported_as_such(rule: Json) -> None:
    with pytest.raises(Refused) as refused:
        failures(resolved(rule), {"title": "a", "price": 1}, NEW)
    assert refused.value.problems[0].code == "INVALID_QUERY"


@pytest.mark.parametrize(
    "rule",
    [
        {"title": {"_regex": "("}},
        {"title": {"_regex": 5}},
        {"title": {"_what": 1}},
        {"a": {"_intersects": {}}},
        [1],
    ],
)
def test_a_rule_that_is_none_is_refused(rule: Any) -> None:
    with pytest.raises(Refused) as refused:
        parse_rule(rule)
    assert refused.value.problems[0].code == "INVALID_QUERY"


def test_a_rule_has_so_many_patterns() -> None:
    tests = [{"title": {"_regex": f"^{number}"}} for number in range(51)]
    parse_rule({"_and": tests[:50]})
    with pytest.raises(Refused, match="more than 50 patterns"):
        parse_rule({"_and": tests})


def test_a_pattern_ends_at_the_very_end_and_takes_linear_time() -> None:
    assert compile_regex("^a$").search("a")
    assert not compile_regex("^a$").search("a\n")
    assert compile_regex("/^a.c$/").search("abc")
    assert not compile_regex("^(a+)+$").search("a" * 50_000 + "!")
    for pattern in ("(", "(?=a)", r"(a)\1", "a" * 1_001):
        with pytest.raises(ValueError):
            compile_regex(pattern)


CONDITIONS = [
    {"rule": {"title": {"_eq": "draft"}}, "required": False, "hidden": True},
    {"rule": {"price": {"_gt": 10}}, "required": True},
    {"name": "without a rule", "readonly": True},
]


@pytest.mark.parametrize(
    ("values", "state"),
    [
        ({}, (False, False, False)),
        ({"title": "draft"}, (False, False, True)),
        ({"title": "draft", "price": 11}, (True, False, False)),
    ],
)
def test_the_last_condition_that_holds_decides(
    values: Json, state: tuple[bool, bool, bool]
) -> None:
    meta = {"conditions": CONDITIONS, "required": False}
    state_of = field_state(meta, parse_conditions(meta, ARTICLES, CATALOGUE), values, NEW)
    assert (state_of.required, state_of.readonly, state_of.hidden) == state
