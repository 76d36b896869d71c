"""Columns of PostgreSQL's own types compare and sort as their types do, and not as texts."""

from __future__ import annotations

import json

import pytest

from tests.client import Answer
from tests.members import may, member
from tests.things import Stage, Table

pytestmark = pytest.mark.release

ORDERED = {
    "money": ["$5.00", "$50.00", "$1,000.00"],
    "interval": ["PT30M", "P2D", "P1M"],
    "inet": ["9.0.0.1", "10.0.0.0/8", "10.0.0.1"],
    "cidr": ["9.0.0.0/8", "10.0.0.0/8"],
    "int4range": ["[9,12)", "[10,11)"],
    "daterange": ["[2024-01-01,2024-02-01)", "[2024-01-01,)"],
    "datemultirange": ["{}", "{[2024-01-01,2024-02-01)}"],
    "bit(4)": ["0011", "0100", "1000"],
    "varbit": ["01", "1"],
    "size_of_shirt": ["small", "middle", "large"],
    "macaddr": ["08:00:2b:01:02:03", "08:00:2b:01:02:04"],
}


@pytest.mark.quick(2)
@pytest.mark.parametrize("kind", ORDERED)
def test_a_type_of_postgresql_has_its_own_order(stage: Stage, kind: str) -> None:
    if kind == "size_of_shirt":
        stage.execute(f"CREATE TYPE {kind} AS ENUM ('small', 'middle', 'large')")
    values = ORDERED[kind]
    name = f"ordered_{list(ORDERED).index(kind)}"
    stage.execute(f"CREATE TABLE {name} (id serial PRIMARY KEY, v {kind})")
    for value in (*reversed(values), None):
        stage.insert(name, {"v": value})
    things = Table(stage.admin, name)
    assert things.column("v", "sort=v") == [*values, None]
    assert things.column("v", "sort=-v") == [None, *reversed(values)]

    def matches(operator: str, operand: object) -> list[object]:
        items = things.get(sort="v", filter=json.dumps({"v": {operator: operand}})).data
        return [item["v"] for item in items]

    for index, value in enumerate(values):
        assert matches("_eq", value) == [value]
        assert matches("_neq", value) == values[:index] + values[index + 1 :]
        assert matches("_in", [value]) == [value]
        assert matches("_gt", value) == values[index + 1 :]
        assert matches("_lte", value) == values[: index + 1]
        assert matches("_between", [value, values[-1]]) == values[index:]
    extremes = {"min": {"v": values[0]}, "max": {"v": values[-1]}}
    assert things.read("aggregate[min]=v&aggregate[max]=v").data == [extremes]
    grouped = things.read("groupBy[]=v&aggregate[count]=*&sort=v").data
    assert {group["v"] for group in grouped} == {*values, None}
    page = things.get(sort="v", limit=1, meta="next_cursor", fields="v").body
    assert page["data"] == [{"v": values[0]}]


def test_a_domain_has_the_order_of_its_type(stage: Stage) -> None:
    stage.execute(
        "CREATE TYPE size_of_shoe AS ENUM ('small', 'large'); CREATE DOMAIN size AS size_of_shoe;"
        "CREATE DOMAIN days AS daterange;"
        "CREATE TABLE shoes (id serial PRIMARY KEY, size size, sold days);"
        "INSERT INTO shoes (size, sold) VALUES ('large', '[2024-02-01,2024-03-01)'),"
        " ('small', '[2024-01-01,2024-02-01)')"
    )
    shoes = Table(stage.admin, "shoes")
    for name, first, second in (
        ("size", "small", "large"),
        ("sold", "[2024-01-01,2024-02-01)", "[2024-02-01,2024-03-01)"),
    ):
        assert shoes.column(name, f"sort={name}") == [first, second]
        assert shoes.column("id", f"filter[{name}][_eq]={first}") == [2]
        by_list = json.dumps({name: {"_in": [second]}})
        assert shoes.get(filter=by_list, fields="id").data == [{"id": 1}]
        assert shoes.column("id", f"filter[{name}][_gt]={first}") == [1]
        extremes = {"min": {name: first}, "max": {name: second}}
        assert shoes.read(f"aggregate[min]={name}&aggregate[max]={name}").data == [extremes]


def test_money_is_compared_with_a_number_and_refuses_what_is_none(stage: Stage) -> None:
    stage.execute("CREATE TABLE bills (id serial PRIMARY KEY, v money, w point)")
    stage.execute("INSERT INTO bills (v, w) VALUES (9, '(1,1)'), (100, '(2,2)')")
    bills = Table(stage.admin, "bills")
    assert bills.column("v", "filter[v][_gt]=50") == ["$100.00"]
    assert bills.read("filter[v][_gt]=much").status == 400
    assert bills.read("filter[w][_gt]=(1,1)").codes == ["INVALID_QUERY"]


def test_citext_compares_without_case_by_every_operator_and_as_a_key(stage: Stage) -> None:
    stage.execute(
        "CREATE EXTENSION IF NOT EXISTS citext;"
        "CREATE TABLE accounts (id citext PRIMARY KEY, email citext, n integer);"
        "INSERT INTO accounts VALUES ('Ann', 'Ann@Example.com', 1), ('Bob', 'bob@example.com', 2)"
    )
    accounts = Table(stage.admin, "accounts")
    for test in (
        {"_eq": "ann@example.COM"},
        {"_in": ["ANN@example.com"]},
        {"_lt": "B"},
        {"_between": ["a", "b"]},
        {"_contains": "ann@"},
        {"_starts_with": "ann"},
        {"_ends_with": "N@EXAMPLE.COM"},
        {"_neq": "BOB@EXAMPLE.COM"},
    ):
        items = accounts.get(filter=json.dumps({"email": test}), fields="id").data
        assert items == [{"id": "Ann"}], test
    assert stage.admin.get(f"{accounts.path}/ANN", fields="n").data == {"n": 1}
    assert stage.admin.patch(f"{accounts.path}/ann", {"n": 3}).data["n"] == 3
    answer = stage.admin.patch(accounts.path, {"keys": ["ANN"], "data": {"n": 4}})
    assert [item["n"] for item in answer.data] == [4]
    assert stage.admin.patch(accounts.path, [{"id": "aNN", "n": 5}]).data[0]["n"] == 5
    assert stage.admin.delete(f"{accounts.path}/aNn").status == 204
    assert accounts.column("id") == ["Bob"]


def test_the_end_of_a_padded_text_is_that_of_its_characters(stage: Stage) -> None:
    stage.execute("CREATE TABLE padded (id serial PRIMARY KEY, v char(5))")
    stage.execute("INSERT INTO padded (v) VALUES ('ab')")
    assert Table(stage.admin, "padded").column("v", "filter[v][_ends_with]=b") == ["ab"]
    assert Table(stage.admin, "padded").column("v", "filter[v][_iends_with]=B") == ["ab"]
    assert Table(stage.admin, "padded").column("v", "filter[v][_eq]=ab") == ["ab"]


def test_rules_of_values_compare_as_the_database_does_or_are_refused(stage: Stage) -> None:
    stage.execute(
        "CREATE EXTENSION IF NOT EXISTS citext; CREATE TYPE grade AS ENUM ('low', 'mid', 'high');"
        "CREATE TABLE ruled (id serial PRIMARY KEY, c citext, g grade, m money, r int4range)"
    )

    def create(field: str, rule: object, value: str) -> Answer:
        permission = may("ruled", action="create", validation={field: rule})
        return member(stage, may("ruled"), permission).post("/items/ruled", {field: value})

    for rule, holds in (
        ({"_eq": "ABC"}, True),
        ({"_neq": "ABC"}, False),
        ({"_in": ["x", "aBC"]}, True),
        ({"_lt": "B"}, True),
        ({"_contains": "B"}, True),
        ({"_nstarts_with": "A"}, False),
    ):
        assert create("c", rule, "abc").status == (200 if holds else 422), rule
    # By the order of the type, not of the texts.
    assert create("g", {"_gt": "low"}, "high").status == 200
    assert create("g", {"_between": ["low", "mid"]}, "high").status == 422
    for field, rule, value in (("m", {"_gt": "9"}, "10"), ("r", {"_eq": "[1,5)"}, "[1,4]")):
        refused = create(field, rule, value)
        assert (refused.status, refused.codes) == (400, ["INVALID_QUERY"]), refused
