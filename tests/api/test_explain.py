"""GET /utils/explain: the statement of a read, its parameters, PostgreSQL's plan."""

from __future__ import annotations

from urllib.parse import quote

import pytest

from tests.client import Client
from tests.members import may, member_of, new_role
from tests.things import Stage, Table, field

THINGS = (
    field("name", "string"),
    field("size", "integer", is_indexed=True),
)


@pytest.mark.parametrize("encode", [str, quote])
def test_it_returns_statement_parameters_and_plan(things: Table, encode: type[str]) -> None:
    path = f"{things.path}?filter[size][_gt]=5&fields=id"
    explanation = things.api.get(f"/utils/explain?path={encode(path)}").data
    assert explanation["statement"].startswith("SELECT r.c0, v.structure, v.access, v.flows")
    assert explanation["parameters"] == ["5"]
    assert "Plan" in explanation["plan"][0]


def test_it_explains_the_read_of_one_item(things: Table) -> None:
    explanation = things.api.get(f"/utils/explain?path={things.path}/7?fields=name").data
    assert explanation["parameters"] == ["7"]
    assert "Index Scan" in str(explanation["plan"])
    assert things.api.get(f"/utils/explain?path={quote(things.path + '/7', safe='')}").data[
        "parameters"
    ] == ["7"]
    for path in ("/x", "/1/2", "/1?aggregate[count]=*"):
        assert things.api.get(f"/utils/explain?path={things.path}{path}").status in (400, 404), path


def test_another_caller_may_be_named_behind_a_path_that_is_encoded(things: Table) -> None:
    path = quote(f"{things.path}?fields=id&limit=5", safe="")
    assert "LIMIT 5" in things.api.get(f"/utils/explain?path={path}").data["statement"]
    assert things.api.get(f"/utils/explain?path={path}&user=public").codes == ["FORBIDDEN"]


def test_it_refuses_what_the_read_itself_would_refuse(things: Table) -> None:
    for path in (f"{things.path}?fields=nope", "/items/nowhere", "/collections", "/items/", ""):
        assert things.api.get(f"/utils/explain?path={path}").status in (400, 404), path


@pytest.mark.quick(1)
@pytest.mark.parametrize("path", ["//[", "//%E2%84%80", "/items/[", "nowhere"])
def test_a_path_that_is_none_is_refused_to_administrators_and_reported_to_nobody_else(
    things: Table, anonymous: Client, path: str
) -> None:
    assert things.api.get(f"/utils/explain?path={path}").status in (400, 404)
    assert anonymous.get(f"/utils/explain?path={path}").codes == ["FORBIDDEN"]


def test_it_is_for_administrators(things: Table, anonymous: Client) -> None:
    assert anonymous.get(f"/utils/explain?path={things.path}").codes == ["FORBIDDEN"]


def test_it_shows_what_each_rule_adds_for_another_caller(things: Table, stage: Stage) -> None:
    role = new_role(stage, may(things.name, "id", "size", permissions={"size": {"_gt": 5}}))
    member_of(stage, role)
    user = stage.value(f"SELECT id::text FROM system_users WHERE role = '{role}'")
    explanation = things.api.get(f"/utils/explain?user={user}&path={things.path}?fields=id").data
    assert explanation["parameters"] == ["5"]
    (rule,) = explanation["rules"]
    assert rule.pop("permission") > 0
    assert rule == {
        "collection": things.name,
        "rule": {"size": {"_gt": 5}},
        "fields": ["id", "size"],
        "sql": 't0."size" > $1::bigint',
        "parameters": ["5"],
    }


def test_it_refuses_a_caller_that_may_not_act(things: Table) -> None:
    for user in ("nobody", "00000000-0000-4000-8000-000000000000"):
        answer = things.api.get(f"/utils/explain?user={user}&path={things.path}")
        assert (answer.status, answer.errors[0]["parameter"]) == (400, "user"), answer
    assert things.api.get(f"/utils/explain?user=public&path={things.path}").codes == ["FORBIDDEN"]
