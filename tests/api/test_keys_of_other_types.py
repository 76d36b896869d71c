"""Items of tables that others have made are written by keys that PostgreSQL writes in its own way:
alone, in batches, and together with related items.
"""

from __future__ import annotations

import json
from typing import NamedTuple
from urllib.parse import quote

import pytest

from tests.client import Client
from tests.file_imports import post_file
from tests.members import may, member
from tests.things import Stage, Table, table

pytestmark = pytest.mark.release

KEYS = {
    "numeric(6,2)": 1.5,
    "double precision": 1e22,
    "boolean": True,
    "timestamptz": "2024-01-02T03:04:05.500Z",
    "timestamp": "2024-01-02T03:04:05",
    "inet": "10.0.0.1/32",
}


class Family(NamedTuple):
    """A table with a key of some type, whose list field `children` is of the rows of another."""

    parents: Table
    children: Table
    key: object

    @property
    def parent(self) -> str:
        text = str(self.key).lower() if self.key is True else str(self.key)
        return f"{self.parents.path}/{quote(text, safe='')}"


@pytest.fixture(params=KEYS)
def family(stage: Stage, request: pytest.FixtureRequest) -> Family:
    kind = str(request.param)
    name = table(stage.admin).name
    parents = Table(stage.admin, f"{name}_parents")
    children = Table(stage.admin, f"{name}_children")
    stage.execute(
        f"CREATE TABLE {parents.name} (id {kind} PRIMARY KEY, name text); "
        f"CREATE TABLE {children.name} (id serial PRIMARY KEY, name text, "
        f"parent {kind} REFERENCES {parents.name})"
    )
    relation = f"/relations/{children.name}/parent"
    assert stage.admin.patch(relation, {"meta": {"one_field": "children"}}).status == 200
    family = Family(parents, children, KEYS[kind])
    family.parents.add({"id": family.key, "name": "a", "children": [{"name": "b"}, {"name": "c"}]})
    return family


def lists(family: Family) -> list[str]:
    items = family.parents.api.get(family.parent, fields="children.name").data["children"]
    return [item["name"] for item in items]


def test_a_list_of_such_an_item_is_replaced_and_changed(family: Family) -> None:
    api = family.parents.api
    assert api.patch(family.parent, {"children": [2, {"name": "d"}]}).status == 200
    assert lists(family) == ["c", "d"]
    changes = {"create": [{"name": "e"}], "update": [{"id": 1}, {"id": 3, "name": "D"}]}
    assert api.patch(family.parent, {"children": {**changes, "delete": [2]}}).status == 200
    assert lists(family) == ["b", "D", "e"]
    assert api.patch(family.parents.path, [{"id": family.key, "children": []}]).status == 200
    assert lists(family) == []


def test_an_object_with_such_a_key_changes_the_item_of_that_key(family: Family) -> None:
    child = {"name": "d", "parent": {"id": family.key, "name": "A"}}
    assert family.children.add(child)[0]["parent"] == family.key
    assert family.parents.column("name") == ["A"]
    assert lists(family) == ["b", "c", "d"]


def test_items_of_such_keys_in_a_list_stay_in_it(stage: Stage, family: Family) -> None:
    owners = table(stage.admin, {"field": "name", "type": "string"})
    column = {"field": "owner", "type": "integer"}
    assert stage.admin.post(f"/fields/{family.parents.name}", column).status == 200
    relation = {"collection": family.parents.name, "field": "owner", "meta": {"one_field": "list"}}
    body = {**relation, "related_collection": owners.name}
    assert stage.admin.post("/relations", body).status == 200
    owners.add({"list": [family.key]}, {})
    path = f"{owners.path}/1"
    kept = stage.admin.patch(path, {"list": [{"id": family.key, "name": "A"}]}).data
    assert kept["list"] == [family.key]
    moved = {"list": {"update": [{"id": family.key}]}}
    assert stage.admin.patch(f"{owners.path}/2", moved).data["list"] == [family.key]
    dropped = {"list": {"delete": [family.key]}}
    assert stage.admin.patch(f"{owners.path}/2", dropped).data["list"] == []


def test_a_foreign_key_may_have_another_type_than_the_key_that_it_points_to(stage: Stage) -> None:
    stage.execute(
        "CREATE TABLE days (id date PRIMARY KEY); CREATE TABLE hours (id serial PRIMARY KEY, "
        "name text, day timestamptz REFERENCES days)"
    )
    assert stage.admin.patch("/relations/hours/day", {"meta": {"one_field": "hours"}}).status == 200
    body = {"id": "2024-01-02", "hours": [{"name": "a"}, {"name": "b"}]}
    assert stage.admin.post("/items/days", body).data == {"id": "2024-01-02", "hours": [1, 2]}
    path = "/items/days/2024-01-02"
    assert stage.admin.patch(path, {"hours": [2, {"name": "c"}]}).data["hours"] == [2, 3]
    assert stage.admin.patch(path, {"hours": {"delete": [2]}}).data["hours"] == [3]
    assert stage.admin.patch(path, {"hours": []}).data["hours"] == []


def test_an_import_changes_the_item_of_such_a_key(family: Family) -> None:
    content = json.dumps([{"id": family.key, "name": "A"}])
    answer = post_file(family.parents, content, form="json")
    assert answer.data == {"created": 0, "updated": 1}
    assert family.parents.column("name") == ["A"]


def members(stage: Stage, family: Family) -> Client:
    rule = {"name": {"_neq": "hidden"}}
    actions = ("read", "update", "delete")
    grants = [may(family.parents.name, action=action, permissions=rule) for action in actions]
    return member(stage, *grants)


def test_others_than_administrators_write_such_items_one_by_one_and_in_batches(
    stage: Stage, family: Family
) -> None:
    api = members(stage, family)
    path = family.parents.path
    family.children.api.delete(family.children.path, {"query": {}})
    assert api.patch(family.parent, {"name": "b"}).data["name"] == "b"
    by_keys = {"keys": [family.key], "data": {"name": "c"}}
    assert [item["name"] for item in api.patch(path, by_keys).data] == ["c"]
    by_array = [{"id": family.key, "name": "d"}]
    assert [item["name"] for item in api.patch(path, by_array).data] == ["d"]
    assert api.patch(family.parent, {"name": "hidden"}).status == 403
    assert api.delete(path, [family.key]).status == 204
    assert family.parents.read("").data == []
