"""How much one request may ask, at all its levels together: each limit is
met, and past it has a 400 of its own.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest

from cms.query.language import limits
from tests.client import Answer, Client
from tests.counted_calls import counted_calls
from tests.things import Table, field, table

Json = dict[str, Any]

IN_BODIES: dict[str, Callable[[int], Json]] = {
    "MAX_FILTER_NODES": lambda n: {"filter": {"_or": [{"id": 1}] * ((n - 1) // 2)}},
    "MAX_LIST_OPERANDS": lambda n: {"filter": {"id": {"_in": [1] * n}}},
    "MAX_SORT_TERMS": lambda n: {"sort": ["id"] * n},
    "MAX_ALIASES": lambda n: {"alias": {f"a{number}": "id" for number in range(n)}},
    "MAX_AGGREGATES": lambda n: {"aggregate": {"count": ["*"] * n}},
    "MAX_GROUPS": lambda n: {"groupBy": [f"n{number}" for number in range(n)]},
    "MAX_SEARCH_LENGTH": lambda n: {"search": "x" * n},
    "MAX_OFFSET": lambda n: {"offset": n},
    "MAX_FIELDS": lambda n: {"fields": [f"n{number}" for number in range(n)]},
    "MAX_PATH_STEPS": lambda n: {"fields": [".".join(["x"] * n)]},
    "MAX_STEPS_IN_ALL": lambda n: {
        "fields": [".".join(["boss"] * 20)] * (n // 20) + ["id"] * (n % 20)
    },
    "MAX_DEEP_GROUPS": lambda n: {"deep": {f"n{number}": {"_limit": 1} for number in range(n)}},
    "MAX_FILTER_DEPTH": lambda n: {"filter": nested(n - 1)},
    "MAX_SEARCH_WORDS": lambda n: {"search": " ".join(f"x{number}" for number in range(n))},
    "MAX_JSON_STEPS": lambda n: {"sort": [".".join(["document", *["x"] * n])]},
    "MAX_JSON_PATHS": lambda n: {"fields": [f"document.n{number}" for number in range(n)]},
}
IN_QUERY_STRINGS: dict[str, Callable[[int], str]] = {
    "MAX_QUERY_PARAMETERS": lambda n: "&".join(["x=1"] * n),
    "MAX_BRACKETS": lambda n: "x" + "[a]" * (n - 1) + "=1",
}
EVERY_LEVEL = {
    "MAX_FILTER_NODES",
    "MAX_LIST_OPERANDS",
    "MAX_SORT_TERMS",
    "MAX_ALIASES",
    "MAX_AGGREGATES",
    "MAX_GROUPS",
    "MAX_SEARCH_WORDS",
}


def nested(depth: int) -> Json:
    return {"_and": [nested(depth - 2)]} if depth > 1 else {}


@pytest.fixture(scope="module")
def staff(admin: Client) -> Table:
    staff = table(
        admin,
        field("boss", "integer"),
        field("document", "json"),
        *(field(f"n{number}", "integer") for number in range(100)),
    )
    relation = {"collection": staff.name, "field": "boss", "related_collection": staff.name}
    assert admin.post("/relations", {**relation, "meta": {"one_field": "staff"}}).status == 200
    return staff


def is_refused(answer: Answer, limit: int) -> bool:
    """Tell whether an answer is the limit's own 400: with the place, and
    with the number but for the offset's.
    """
    problem = answer.errors[0] if answer.status == 400 else {}
    return problem.get("code") == "INVALID_QUERY" and (
        re.search(rf"\b{limit}\b", problem["reason"]) is not None
        or problem.get("parameter") == "offset"
    )


@pytest.mark.quick(4)
@pytest.mark.parametrize("name", IN_BODIES)
def test_a_limit_is_met_and_not_passed(staff: Table, name: str) -> None:
    limit = getattr(limits, name)
    make = IN_BODIES[name]
    assert not is_refused(staff.api.search(staff.path, make(limit)), limit)
    assert is_refused(staff.api.search(staff.path, make(limit + 2)), limit)


@pytest.mark.parametrize("name", IN_QUERY_STRINGS)
def test_a_limit_of_query_strings_is_met_and_not_passed(staff: Table, name: str) -> None:
    limit = getattr(limits, name)
    make = IN_QUERY_STRINGS[name]
    assert staff.read(make(limit)).status == 200
    assert is_refused(staff.read(make(limit + 1)), limit)


@pytest.mark.parametrize("name", sorted(EVERY_LEVEL))
def test_what_is_asked_at_several_levels_is_counted_together(staff: Table, name: str) -> None:
    limit = getattr(limits, name)
    make = IN_BODIES[name]
    half = make(limit // 2 + 3)
    query = {**half, "deep": {"x": {f"_{key}": value for key, value in half.items()}}}
    assert not is_refused(staff.api.search(staff.path, half), limit)
    assert is_refused(staff.api.search(staff.path, query), limit)


@pytest.mark.parametrize("name", ["MAX_FIELDS", "MAX_PATH_STEPS", "MAX_DEEP_GROUPS"])
def test_past_a_limit_nothing_else_of_a_request_is_looked_at(staff: Table, name: str) -> None:
    limit = getattr(limits, name)
    answer = staff.api.search(staff.path, {**IN_BODIES[name](limit + 1), "limit": "x"})
    assert is_refused(answer, limit)
    assert len(answer.errors) == 1


@pytest.mark.release
def test_beside_stars_past_their_limit_nothing_else_is_looked_at(staff: Table) -> None:
    answer = staff.read("fields=*.*.*.*.*.*.*&filter[id][_contains]=1")
    assert is_refused(answer, limits.MAX_FIELDS_IN_ALL)
    assert len(answer.errors) == 1


@pytest.mark.parametrize("parameter", ["fields", "sort", "filter"])
def test_a_path_goes_ten_relations_deep_and_a_longer_one_is_refused_with_its_parameter(
    staff: Table, parameter: str
) -> None:
    paths = [".".join([*["boss"] * depth, "id"]) for depth in (10, 11)]
    queries = [{parameter: {path: 1} if parameter == "filter" else [path]} for path in paths]
    met, passed = (staff.api.search(staff.path, query) for query in queries)
    assert met.status == 200
    assert is_refused(passed, 10)
    assert passed.errors[0]["parameter"] == parameter


@pytest.mark.release
def test_stars_open_so_many_fields_in_all(staff: Table) -> None:
    assert staff.get(fields="*.*.*.*").status == 200
    assert is_refused(staff.get(fields="*.*.*.*.*.*.*"), limits.MAX_FIELDS_IN_ALL)


def test_no_limit_is_left_out(staff: Table) -> None:
    names = {name for name in vars(limits) if name.startswith("MAX_")}
    # The patterns are those of a rule.
    others = {"MAX_FIELDS_IN_ALL", "MAX_PATTERNS"}
    assert names - IN_BODIES.keys() - IN_QUERY_STRINGS.keys() == others


def test_no_list_of_names_is_read_past_the_longest(staff: Table) -> None:
    for parameter in ("fields", "sort", "groupBy", "meta"):
        for names in (["id"] * 1_601, "id," * 1_600 + "id"):
            answer = staff.api.search(staff.path, {parameter: names})
            assert is_refused(answer, 1_600), answer
            assert answer.errors[0]["parameter"] == parameter


def test_a_query_with_wrong_parts_at_many_levels_gets_a_hundred_problems(staff: Table) -> None:
    wrong = {f"x{number}": [1] for number in range(90)}
    deep = {f"n{number}": {"_filter": wrong} for number in range(100)}
    with counted_calls() as calls:
        answer = staff.api.search(staff.path, {"deep": deep})
    assert len(answer.errors) == 100
    assert calls.total < 100_000


@pytest.mark.quick(1)
@pytest.mark.parametrize("query", [{"filter": 1}, {"limit": "x"}, {"page": {"after": "x"}}])
def test_the_right_to_a_collection_comes_before_its_query(
    staff: Table, anonymous: Client, query: Json
) -> None:
    for path in (staff.path, "/items/nowhere"):
        assert anonymous.search(path, query).codes == ["FORBIDDEN"]
    assert staff.api.search("/items/nowhere", query).codes == ["NOT_FOUND"]
    assert anonymous.get(staff.path, limit="x").codes == ["FORBIDDEN"]
