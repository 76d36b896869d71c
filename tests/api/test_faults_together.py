"""All that is wrong with one request is told in one answer, one entry for each problem (decisions, section 2)."""

from __future__ import annotations

import json
from urllib.parse import quote

import pytest

from tests.client import Client
from tests.members import may, member
from tests.things import Stage, Table, field, table


@pytest.fixture(scope="module")
def things(admin: Client) -> Table:
    made = table(admin, field("name", "string"), field("price", "decimal"), field("data", "json"))
    made.add({"name": "x", "price": 1})
    return made


def places(things: Table, query: str) -> list[object]:
    answer = things.ask(quote(query, safe="=&,[]"))
    assert answer.status == 400, answer.text
    return [error.get("path") or error.get("parameter") or error.get("field") for error in answer.errors]


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("limit=x&offset=-1&page=0&meta=nope", ["limit", "offset", "page", "meta"]),
        ("sort=a,,b&limit=x&fields=a,,b", ["fields", "sort", "limit"]),
        ("aggregate[nope]=*&groupBy=a,,b&limit=-2", ["aggregate", "groupBy", "limit"]),
        ("alias[1a]=name&search=" + "x" * 2000, ["alias", "search"]),
        ("filter[price][_between]=1&sort=a,,b", ["filter[price][_between]", "sort"]),
        ("deep[a][_limit]=x&deep[a][_sort]=a,,b&limit=x", ["deep[a][_sort]", "deep[a][_limit]", "limit"]),
        ("deep[a][b][_page]=x&deep[c][_page]=x", ["deep[a][b][_page]", "deep[c][_page]"]),
        ("deep=[&filter={", ["deep", "filter"]),
    ],
)
def test_wrong_parameters(things: Table, query: str, expected: list[str]) -> None:
    assert places(things, query) == expected


def test_wrong_tests_of_one_filter(things: Table) -> None:
    tests = {
        "_and": [{"price": {"_between": [1]}}, {"_or": [{"name": {"_nope": 1}}, {"price": {"_null": "x"}}]}],
        "name": {"_in": [None]},
    }
    assert places(things, f"filter={json.dumps(tests)}") == [
        "filter[_and][0][price][_between]",
        "filter[_and][1][_or][0][name][_nope]",
        "filter[_and][1][_or][1][price][_null]",
        "filter[name][_in]",
    ]


def test_wrong_names_operators_and_operands(things: Table) -> None:
    query = "fields=nope,name,years&sort=-nothing&filter[price][_contains]=1&filter[id][_gt]=x&filter[gone]=1"
    answer = things.ask(query)
    assert answer.status == 400
    assert sorted(str(error.get("field") or error.get("place")) for error in answer.errors) == [
        "gone",
        "nope",
        "nothing",
        "price",
        f"{things.name}.id _gt",
        "years",
    ]


def test_wrong_operands(things: Table) -> None:
    answer = things.ask("filter[price][_gt]=x&filter[id][_in]=1,y&filter[price][_lt]=" + "9" * 1001)
    assert answer.codes == ["INVALID_QUERY", "VALUE_OUT_OF_RANGE", "INVALID_QUERY"]


def test_the_body_of_a_search(things: Table) -> None:
    answer = things.api.search(things.path, {"limit": "x", "sort": [1], "filter": {"name": {"_nope": 1}}})
    assert [error["parameter"] for error in answer.errors] == ["filter", "sort", "limit"]


def test_the_same_fault_is_told_once_and_many_are_cut_short(things: Table) -> None:
    assert len(things.ask("fields=nope,nope&sort=nope").errors) == 1
    many = ",".join(f"nope{n}" for n in range(1_000))
    assert len(things.ask(f"fields={many}").errors) == 100


def test_whoever_may_not_know_of_a_field_is_told_of_none(stage: Stage, things: Table) -> None:
    caller = member(stage, may(things.name, "id", "name"))
    hidden, missing = (
        caller.get(f"{things.path}?fields={name}&filter[id][_contains]=1&filter[name]=y&sort={name}")
        for name in ("price", "xrice")
    )
    assert (hidden.status, hidden.codes, hidden.text) == (403, ["FORBIDDEN"], missing.text)
