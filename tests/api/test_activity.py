"""/activity, /revisions, an item's revisions and the way back to one."""

from __future__ import annotations

import json
from typing import Any

import psycopg
import pytest

from tests.client import Client
from tests.things import Stage, Table, field, table

Json = dict[str, Any]


def note(stage: Stage, collection: str, item: object, data: Json) -> int:
    """Put an activity with its revision into the tables, and return the revision's key."""
    with psycopg.connect(stage.dsn, autocommit=True) as connection:
        row = connection.execute(
            "WITH activity AS (INSERT INTO system_activity (action, collection, "
            "item) VALUES ('update', %s, %s)"
            " RETURNING id) INSERT INTO system_revisions (activity, collection, item, data, delta)"
            " SELECT id, %s, %s, %s, %s FROM activity RETURNING id",
            (collection, str(item), collection, str(item), json.dumps(data), json.dumps(data)),
        ).fetchone()
    assert row
    return int(row[0])


THINGS = (
    field("title", "string"),
    field("price", "decimal"),
    field("tags", "csv"),
    field("secret", "string", special="conceal"),
    field("changed", "timestamp", special="date-updated"),
)


def revisions(things: Table, key: object, query: str = "") -> list[Json]:
    entries: list[Json] = things.api.get(f"{things.path}/{key}/revisions?sort=id{query}").data
    return entries


def test_activity_and_revisions_take_the_whole_query_language(stage: Stage, things: Table) -> None:
    api = things.api
    name = things.name
    first, second = (note(stage, name, 1, {"title": title}) for title in ("a", "b"))
    note(stage, name, 2, {"title": "c"})
    query_string = (
        f"filter[collection]={name}&filter[item]=1&sort=-id"
        f"&fields=id,data,activity.action&meta=filter_count"
    )
    answer = api.get(f"/revisions?{query_string}")
    assert answer.body == {
        "data": [
            {"id": second, "data": {"title": "b"}, "activity": {"action": "update"}},
            {"id": first, "data": {"title": "a"}, "activity": {"action": "update"}},
        ],
        "meta": {"filter_count": 2},
    }
    assert api.get(f"/revisions/{first}?fields=item,collection").data == {
        "item": "1",
        "collection": name,
    }
    query = {"filter": {"collection": name}, "aggregate": {"count": "*"}}
    assert api.search("/activity", query).data == [{"count": 3}]
    one = api.get(f"/activity?filter[collection]={name}&limit=1&fields=id,item").data[0]
    assert api.get(f"/activity/{one['id']}?fields=id,item").data == one
    assert api.get(
        f"/activity?filter[collection]={name}&export=csv&fields=item&sort=id"
    ).text.split() == [
        "item",
        "1",
        "1",
        "2",
    ]


@pytest.mark.parametrize("path", ["/activity/0", "/activity/x", "/revisions/0", "/revisions/x"])
def test_what_is_not_there_is_404(admin: Client, path: str) -> None:
    assert (admin.get(path).status, admin.get(path).codes) == (404, ["NOT_FOUND"])


@pytest.mark.parametrize(
    "path",
    [
        "/activity",
        "/revisions",
        "/activity/1",
        "/revisions/1",
        "/comments",
        "/items/nowhere/1/revisions",
    ],
)
def test_without_rights_there_is_nothing_to_see(stage: Stage, path: str) -> None:
    assert (stage.anonymous.get(path).status, stage.anonymous.get(path).codes) == (
        403,
        ["FORBIDDEN"],
    )


def test_the_revisions_of_an_item_are_its_own(stage: Stage, things: Table) -> None:
    mine = note(stage, things.name, 1, {"title": "a"})
    note(stage, things.name, 2, {"title": "b"})
    other = note(stage, "elsewhere", 1, {})
    before = len(revisions(things, 1))
    assert [revision["id"] for revision in revisions(things, 1)] == [mine]
    assert (
        revisions(things, 1, "&filter[_or][0][item]=2&filter[_or][1][id][_gt]=0&fields=item")
        == [{"item": "1"}] * before
    )
    assert things.api.get(f"{things.path}/1/revisions?aggregate[count]=*").data == [
        {"count": before}
    ]
    assert things.api.get(f"{things.path}/1/revisions/{mine}?fields=data").data == {
        "data": {"title": "a"}
    }
    assert things.api.get(f"{things.path}/1/revisions/{other}").status == 404
    assert things.api.get(f"{things.path}/2/revisions/{mine}").status == 404
    assert things.api.get(f"{things.path}/x/revisions").status == 404
    assert things.api.get("/items/nowhere/1/revisions").codes == ["NOT_FOUND"]


def test_the_total_of_an_items_revisions_is_theirs(stage: Stage, things: Table) -> None:
    for key in (1, 1, 2):
        note(stage, things.name, key, {"title": "a"})
    meta = things.api.get(
        f"{things.path}/1/revisions?meta=total_count,filter_count&filter[id]=0"
    ).body["meta"]
    assert meta == {"total_count": 2, "filter_count": 0}


def test_an_activity_lists_its_revisions(admin: Client, things: Table) -> None:
    things.add({"title": "a"})
    query_string = f"filter[collection]={things.name}&filter[item]=1"
    (revision,) = admin.get(f"/revisions?{query_string}").data
    (act,) = admin.get(f"/activity?{query_string}").data
    assert act["revisions"] == [revision["id"]]
    assert admin.get(f"/activity/{act['id']}?fields=revisions.data").data == {
        "revisions": [{"data": revision["data"]}]
    }
    fields = {entry["field"]: entry["type"] for entry in admin.get("/fields/system_activity").data}
    assert fields["revisions"] == "alias"
    assert admin.get("/relations/system_activity/revisions").data["field"] == "activity"


def test_an_item_goes_back_to_a_revision(stage: Stage, things: Table) -> None:
    (item,) = things.add({"title": "new", "price": 2, "secret": "s", "tags": ["x"]})
    data = {
        "id": 77,
        "title": "old",
        "price": 1.50,
        "tags": ["a", "b"],
        "secret": "**********",
        "changed": "2001-01-01T00:00:00Z",
        "dropped": 1,
    }
    revision = note(stage, things.name, item["id"], data)
    answer = things.api.post(f"/utils/revert/{revision}?fields=id,title,price,tags")
    assert answer.data == {"id": item["id"], "title": "old", "price": 1.5, "tags": ["a", "b"]}
    kept = (
        stage.value(f"SELECT secret FROM {things.name}"),
        stage.value(f"SELECT extract(year FROM changed) FROM {things.name}"),
    )
    assert kept[0] == "s"
    assert kept[1] > 2001


def test_the_history_records_that_an_item_was_reverted(stage: Stage, things: Table) -> None:
    (item,) = things.add({"title": "new"})
    revision = note(stage, things.name, item["id"], {"title": "old"})
    assert things.api.post(f"/utils/revert/{revision}").status == 200
    path = f"/activity?filter[collection]={things.name}&sort=-id&limit=1&fields=action,item"
    assert things.api.get(path).data == [{"action": "revert", "item": str(item["id"])}]


def test_there_is_no_way_back_for_what_is_gone(stage: Stage, things: Table) -> None:
    revision = note(stage, things.name, 99, {"title": "old"})
    assert things.api.post(f"/utils/revert/{revision}").status == 404
    assert things.api.post("/utils/revert/0").status == 404
    assert things.api.post(f"/utils/revert/{note(stage, 'nowhere', 1, {})}").status == 404
    assert stage.anonymous.post(f"/utils/revert/{revision}").status == 403


def test_a_singleton_goes_back_as_well(stage: Stage, admin: Client) -> None:
    singleton = table(admin, field("title", "string"), singleton=True)
    admin.patch(singleton.path, {"title": "new"})
    revision = note(stage, singleton.name, 1, {"title": "old"})
    assert admin.post(f"/utils/revert/{revision}").data == {"id": 1, "title": "old"}


def test_a_client_that_polls_finds_each_activity_once(stage: Stage, things: Table) -> None:
    collection = {"collection": {"_eq": things.name}}
    polled: list[int] = []
    for round_ in range(4):
        things.add({"title": f"{round_}"}, {"title": f"{round_} too"})
        behind = {"id": {"_gt": polled[-1] if polled else 0}}
        query = {"filter": {"_and": [collection, behind]}, "sort": ["id"]}
        new = stage.admin.search("/activity", query).data
        polled += [activity["id"] for activity in new]
        for activity in new:
            shown = activity["timestamp"]
            for operator, is_found in (("_eq", True), ("_gte", True), ("_gt", False)):
                at = {"_and": [collection, {"timestamp": {operator: shown}}]}
                answer = stage.admin.search("/activity", {"filter": at, "fields": ["id"]})
                assert ({"id": activity["id"]} in answer.data) == is_found
    everything = stage.admin.search("/activity", {"filter": collection, "sort": ["id"]}).data
    assert polled == [activity["id"] for activity in everything]
    assert len(set(polled)) == len(polled) == 8
