"""Changes of the structure are in the history; that of a dropped
collection stays for administrators.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.client import Client
from tests.members import may, member
from tests.things import Json, Stage, Table, field, table

HISTORY = may("system_revisions"), may("system_activity")


def revisions_of(admin: Client, of: str, item: str) -> list[Json]:
    """Return the revisions of a record of the structure, with their activities."""
    params = {
        "filter[collection]": f"system_{of}",
        "filter[item]": item,
        "sort": "id",
        "fields": "*,activity.*",
    }
    entries: list[Json] = admin.get("/revisions", **params).data
    return entries


def activities(admin: Client, of: str, item: str) -> list[str]:
    params = {
        "filter[collection]": f"system_{of}",
        "filter[item]": item,
        "sort": "id",
        "fields": "action",
    }
    return [activity["action"] for activity in admin.get("/activity", **params).data]


def test_a_collection_is_made_changed_and_dropped(admin: Client) -> None:
    things = table(admin, field("title", "string"), note="first")
    record = admin.get(f"/collections/{things.name}").data
    me = admin.get("/users/me").data["id"]
    admin.patch(
        f"/collections/{things.name}", {"meta": {"note": "second"}, "schema": {"comment": "said"}}
    )
    changed = admin.get(f"/collections/{things.name}").data
    fields = [admin.get(f"/fields/{things.name}/{name}").data for name in ("id", "title")]
    assert admin.delete(f"/collections/{things.name}").status == 204
    first, second, last = revisions_of(admin, "collections", things.name)
    assert (first["data"], first["delta"], first["activity"]["action"]) == (
        record,
        record,
        "create",
    )
    assert (first["activity"]["user"], first["activity"]["ip"], first["parent"]) == (
        me,
        "127.0.0.1",
        None,
    )
    assert second["data"] == changed
    assert second["delta"] == {"meta": {"note": "second"}, "schema": {"comment": "said"}}
    assert (last["data"], last["delta"], last["activity"]["action"]) == (changed, None, "delete")
    for kept in fields:
        creation, gone = revisions_of(admin, "fields", f"{things.name}.{kept['field']}")
        assert (creation["data"], gone["data"]) == (kept, kept)
        assert (creation["parent"], gone["parent"]) == (first["id"], last["id"])
        assert (creation["activity"]["action"], gone["activity"]["action"]) == ("create", "delete")


def test_fields_are_made_changed_renamed_and_deleted(admin: Client) -> None:
    things = table(admin)
    record = admin.post(f"/fields/{things.name}", field("title", "string", max_length=20)).data
    admin.patch(
        f"/fields/{things.name}/title", {"meta": {"note": "said"}, "schema": {"max_length": 40}}
    )
    admin.patch(f"/fields/{things.name}/title", {"field": "name"})
    admin.patch(f"/fields/{things.name}", [{"field": "name", "meta": {"width": "half"}}])
    last = admin.get(f"/fields/{things.name}/name").data
    admin.delete(f"/fields/{things.name}/name")
    assert revisions_of(admin, "fields", f"{things.name}.title") == []
    revisions = revisions_of(admin, "fields", f"{things.name}.name")
    assert [revision["activity"]["action"] for revision in revisions] == [
        "create",
        "update",
        "update",
        "update",
        "delete",
    ]
    assert revisions[0]["data"] == record
    assert revisions[1]["delta"] == {
        "meta": {"note": "said"},
        "schema": {"max_length": 40, "data_type": "character varying(40)"},
    }
    assert revisions[2]["delta"]["field"] == "name"
    assert revisions[3]["delta"] == {"meta": {"width": "half"}}
    assert revisions[4]["data"] == last
    assert {revision["activity"]["item"] for revision in revisions} == {f"{things.name}.name"}


def test_relations_are_made_changed_and_deleted_with_what_they_bring(admin: Client) -> None:
    one = table(admin)
    many = table(admin, field("up", "integer"))
    body = {
        "collection": many.name,
        "field": "up",
        "related_collection": one.name,
        "meta": {"one_field": "list"},
    }
    record = admin.post("/relations", body).data
    admin.patch(f"/relations/{one.name}/list", {"meta": {"one_deselect_action": "delete"}})
    assert admin.delete(f"/relations/{one.name}/list").status == 204
    first, second, last = revisions_of(admin, "relations", f"{many.name}.up")
    assert first["data"] == record
    assert second["delta"] == {"meta": {"one_deselect_action": "delete"}}
    assert last["activity"]["action"] == "delete"
    created, deleted = revisions_of(admin, "fields", f"{one.name}.list")
    assert (created["parent"], deleted["parent"]) == (first["id"], last["id"])


@pytest.mark.release
def test_a_field_takes_its_relation_along(admin: Client) -> None:
    one = table(admin)
    many = table(admin, field("up", "integer"))
    body = {
        "collection": many.name,
        "field": "up",
        "related_collection": one.name,
        "meta": {"one_field": "list"},
    }
    assert admin.post("/relations", body).status == 200
    admin.patch(f"/fields/{many.name}/up", {"field": "above"})
    renamed = revisions_of(admin, "fields", f"{many.name}.above")[-1]
    relation = revisions_of(admin, "relations", f"{many.name}.above")
    assert [revision["activity"]["action"] for revision in relation] == ["create", "update"]
    assert relation[1]["parent"] == renamed["id"]
    admin.delete(f"/fields/{many.name}/above")
    gone = revisions_of(admin, "fields", f"{many.name}.above")[-1]
    for revision in (
        revisions_of(admin, "relations", f"{many.name}.above")[-1],
        revisions_of(admin, "fields", f"{one.name}.list")[-1],
    ):
        assert (revision["activity"]["action"], revision["parent"]) == ("delete", gone["id"])


@pytest.mark.release
def test_permissions_follow_and_go_as_part_of_it(admin: Client) -> None:
    things = table(admin, field("title", "string"), field("note", "string"))
    role = admin.post("/roles", {"name": "Readers"}).data["id"]
    rule = {"title": {"_eq": "x"}}
    sent = {
        "role": role,
        "collection": things.name,
        "action": "read",
        "fields": ["title", "note"],
        "permissions": rule,
    }
    permission = str(admin.post("/permissions", sent).data["id"])
    admin.patch(f"/fields/{things.name}/title", {"field": "name"})
    admin.delete(f"/fields/{things.name}/note")
    last = admin.get(f"/permissions/{permission}").data
    admin.delete(f"/collections/{things.name}")
    _, renamed, shortened, gone = revisions_of(admin, "permissions", permission)
    assert renamed["delta"] == {"fields": ["name", "note"], "permissions": {"name": {"_eq": "x"}}}
    assert renamed["parent"] == revisions_of(admin, "fields", f"{things.name}.name")[1]["id"]
    assert (shortened["delta"], shortened["data"]) == ({"fields": ["name"]}, last)
    assert (gone["activity"]["action"], gone["data"]) == ("delete", last)
    assert gone["parent"] == revisions_of(admin, "collections", things.name)[-1]["id"]


@pytest.mark.release
def test_presets_and_shares_of_a_dropped_collection_go_as_part_of_it(
    stage: Stage, admin: Client
) -> None:
    things = table(admin)
    other = table(admin)
    me = admin.get("/users/me").data["id"]
    for name in (things.name, other.name):
        stage.execute(
            f"""INSERT INTO system_presets (collection, "user") VALUES ('{name}', '{me}');
            INSERT INTO system_shares (collection, item, password) VALUES ('{name}', '1',
                'swordfish')"""
        )
    assert admin.delete(f"/collections/{things.name}").status == 204
    gone = revisions_of(admin, "collections", things.name)[-1]["id"]
    for kind in ("presets", "shares"):
        params = {
            "filter[collection]": f"system_{kind}",
            "fields": "data,delta,parent,activity.action",
        }
        (revision,) = admin.get("/revisions", **params).data
        assert revision["data"]["collection"] == things.name, kind
        assert (revision["delta"], revision["parent"]) == (None, gone), kind
        assert revision["activity"] == {"action": "delete"}, kind
    assert "swordfish" not in stage.value(
        "SELECT string_agg(concat(data, delta), ' ') FROM system_revisions"
    )


def test_a_junction_comes_with_all_its_parts(admin: Client) -> None:
    one = table(admin)
    other = table(admin)
    junction = f"{one.name}_{other.name}"
    body = {
        "collection": one.name,
        "field": "others",
        "related_collection": other.name,
        "meta": {"junction_collection": junction},
    }
    answer = admin.post("/relations", body)
    assert answer.status == 200, answer.text
    (root,) = revisions_of(admin, "relations", f"{junction}.{answer.data['field']}")
    (creation,) = revisions_of(admin, "collections", junction)
    (alias,) = revisions_of(admin, "fields", f"{one.name}.others")
    assert root["data"] == answer.data
    assert creation["parent"] == alias["parent"] == root["id"]


def test_what_changes_nothing_leaves_the_act_and_what_is_refused_nothing(
    stage: Stage, admin: Client
) -> None:
    things = table(admin, field("title", "string"), note="same")
    admin.patch(f"/collections/{things.name}", {"meta": {"note": "same"}})
    assert activities(admin, "collections", things.name) == ["create", "update"]
    assert len(revisions_of(admin, "collections", things.name)) == 1
    count = "SELECT count(*) FROM system_activity"
    before = stage.value(count)
    assert admin.post("/collections", {"collection": things.name, "schema": {}}).status == 400
    assert (
        admin.patch(
            f"/fields/{things.name}/title", {"type": "integer", "schema": {"max_length": 5}}
        ).status
        == 400
    )
    assert admin.delete("/collections/nowhere").status == 404
    stage.execute(f"CREATE TABLE behind_{things.name} (id int PRIMARY KEY)")
    assert stage.value(count) == before


GOOD = {"meta": {"note": "told"}}


@pytest.mark.quick(1)
@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        (
            "PATCH",
            "/collections",
            [{"collection": "{name}", **GOOD}, {"collection": "nowhere", **GOOD}],
        ),
        (
            "PATCH",
            "/collections",
            [
                {"collection": "{name}", **GOOD},
                {"collection": "{name}", "meta": {"group": "{name}"}},
            ],
        ),
        (
            "PATCH",
            "/fields/{name}",
            [{"field": "title", **GOOD}, {"field": "title", "type": "integer"}],
        ),
        ("PATCH", "/fields/{name}", [{"field": "title", "schema": {"is_unique": True}}]),
        ("PATCH", "/fields/{name}/title", {"field": "id"}),
        ("DELETE", "/fields/{name}/id", None),
        (
            "POST",
            "/fields/{name}",
            {"field": "n", "type": "integer", "schema": {"is_nullable": False}},
        ),
        (
            "POST",
            "/relations",
            {"collection": "{name}", "field": "up", "related_collection": "{name}"},
        ),
        (
            "POST",
            "/collections",
            {"collection": "x", "schema": {}, "fields": [{"field": "a", "type": "nonsense"}]},
        ),
    ],
)
def test_a_call_that_fails_half_way_leaves_nothing(
    stage: Stage, admin: Client, method: str, path: str, body: Any
) -> None:
    things = table(admin, field("title", "string"), field("up", "integer"))
    things.add({"title": "same", "up": 99}, {"title": "same"})
    sent = json.loads(json.dumps(body).replace("{name}", things.name))
    counts = (
        "SELECT (SELECT count(*) FROM system_activity), (SELECT count(*) FROM system_revisions)"
    )
    before = (
        stage.value(f"SELECT to_json(c) FROM ({counts}) AS c"),
        admin.get(f"/fields/{things.name}").data,
    )
    assert admin.send(method, path.format(name=things.name), sent).status in (400, 404)
    after = (
        stage.value(f"SELECT to_json(c) FROM ({counts}) AS c"),
        admin.get(f"/fields/{things.name}").data,
    )
    assert after == before
    assert admin.get(f"/collections/{things.name}").data["meta"]["note"] is None


def test_a_call_that_is_done_once_is_reported_once(admin: Client) -> None:
    name = f"{table(admin).name}_once"
    for _ in range(2):
        answer = admin.send(
            "POST", "/collections", {"collection": name, "schema": {}}, **{"Idempotency-Key": name}
        )
        assert answer.status == 200, answer
    assert activities(admin, "collections", name) == ["create"]


def test_a_secret_is_in_no_record(stage: Stage, admin: Client) -> None:
    things = table(admin, field("pin", "string", special="conceal", default_value="swordfish"))
    (creation,) = revisions_of(admin, "fields", f"{things.name}.pin")
    assert creation["data"]["schema"]["default_value"] == "**********"
    assert "swordfish" not in stage.value(
        "SELECT string_agg(concat(data, delta), ' ') FROM system_revisions"
    )


def test_a_default_is_hidden_when_its_field_becomes_a_secret(stage: Stage, admin: Client) -> None:
    things = table(admin, field("pin", "string", default_value="stingray"))
    admin.patch(f"/fields/{things.name}/pin", {"schema": {"default_value": "sturgeon"}})
    admin.patch(f"/fields/{things.name}/pin", {"meta": {"special": ["conceal"]}})
    creation, changed, hidden = revisions_of(admin, "fields", f"{things.name}.pin")
    assert (
        creation["data"]["schema"]["default_value"]
        == changed["delta"]["schema"]["default_value"]
        == "**********"
    )
    assert hidden["delta"]["meta"] == {"special": ["conceal"]}
    text = stage.value("SELECT string_agg(concat(data, delta), ' ') FROM system_revisions")
    assert "stingray" not in text
    assert "sturgeon" not in text


def test_only_administrators_see_the_history_of_the_structure(stage: Stage, admin: Client) -> None:
    things = table(admin, field("title", "string"))
    rights = [may(f"system_{name}") for name in ("collections", "fields", "relations")]
    caller = member(stage, may(things.name), *rights, *HISTORY)
    for path in ("/activity", "/revisions"):
        assert {entry["collection"] for entry in caller.get(f"{path}?limit=-1").data} <= {
            things.name
        }
    for path in (
        "/activity?aggregate[count]=*&groupBy=collection",
        "/revisions?aggregate[count]=*&groupBy=collection",
    ):
        assert [group["collection"] for group in caller.get(path).data] == []
    assert caller.get("/revisions?filter[activity][collection]=system_fields").data == []
    body = caller.get(
        "/activity?filter[revisions][collection]=system_fields&meta=total_count,filter_count"
    ).body
    assert body == {"data": [], "meta": {"total_count": 0, "filter_count": 0}}
    (creation,) = revisions_of(admin, "collections", things.name)
    assert caller.get(f"/revisions/{creation['id']}").status == 404
    assert caller.get(f"/activity/{creation['activity']['id']}").status == 404
    assert admin.post(f"/utils/revert/{creation['id']}").status == 403
    assert things.api.get(f"/activity/{creation['activity']['id']}").status == 200


def again(admin: Client, things: Table, *fields: Json) -> Table:
    """Make a collection of the name of one that has been dropped."""
    assert admin.delete(f"/collections/{things.name}").status == 204
    body = {"collection": things.name, "schema": {}, "fields": list(fields)}
    assert admin.post("/collections", body).status == 200
    return things


def test_the_history_of_a_dropped_collection_stays_for_administrators(
    stage: Stage, admin: Client
) -> None:
    things = table(admin, field("title", "string"))
    things.add({"title": "old"})
    admin.post("/comments", {"collection": things.name, "item": 1, "comment": "older"})
    reader = member(stage, may(things.name), *HISTORY)
    params = {"filter[collection]": things.name, "sort": "id", "meta": "total_count,filter_count"}
    assert len(reader.get("/revisions", **params).data) == 1
    assert admin.delete(f"/collections/{things.name}").status == 204
    caller = member(stage, *HISTORY)
    for path, count in (("/revisions", 1), ("/activity", 2)):
        assert caller.get(path, **params).data == []
        assert len(admin.get(path, **params).data) == count
    assert admin.get(f"/items/{things.name}/1/revisions").status == 404


@pytest.mark.release
@pytest.mark.parametrize("rule", [{}, {"permissions": {"title": {"_nnull": True}}}])
def test_it_is_none_of_the_next_collection_of_the_name(
    stage: Stage, admin: Client, rule: Any
) -> None:
    things = table(admin, field("title", "string"))
    things.add({"title": "old"})
    admin.post("/comments", {"collection": things.name, "item": 1, "comment": "older"})
    (former,) = things.api.get(f"{things.path}/1/revisions").data
    again(admin, things, field("title", "string")).add({"title": "new"})
    reader = member(stage, may(things.name, **rule), *HISTORY)
    params = {"filter[collection]": things.name, "sort": "id", "meta": "total_count,filter_count"}
    page = reader.get("/revisions", **params)
    assert [entry["data"]["title"] for entry in page.data] == ["new"]
    assert page.body["meta"] == {"total_count": 1, "filter_count": 1}
    assert [entry["action"] for entry in reader.get("/activity", **params).data] == ["create"]
    assert reader.get(f"/revisions/{former['id']}").status == 404
    for caller in (admin, reader):
        answer = caller.get(f"{things.path}/1/revisions?meta=total_count,filter_count")
        assert [entry["data"]["title"] for entry in answer.data] == ["new"], answer
        assert answer.body["meta"] == {"total_count": 1, "filter_count": 1}, answer
        assert caller.get(f"{things.path}/1/revisions/{former['id']}").status == 404
        assert caller.post(f"/utils/revert/{former['id']}").status == 404
    assert [entry["data"]["title"] for entry in admin.get("/revisions", **params).data] == [
        "old",
        "new",
    ]


@pytest.mark.release
def test_changes_of_its_fields_leave_the_older_history_alone(stage: Stage, admin: Client) -> None:
    things = table(admin, field("title", "string"))
    things.add({"title": "old"})
    again(admin, things, field("title", "string")).add({"title": "new"})
    admin.patch(f"/fields/{things.name}/title", {"field": "name"})
    answer = admin.get(
        "/revisions", **{"filter[collection]": things.name, "sort": "id", "fields": "data"}
    ).data
    assert [revision["data"] for revision in answer] == [
        {"id": 1, "title": "old"},
        {"id": 1, "name": "new"},
    ]


@pytest.mark.release
def test_a_table_dropped_behind_the_service_leaves_nothing_to_the_next_either(
    stage: Stage, admin: Client
) -> None:
    things = table(admin, field("title", "string"))
    things.add({"title": "old"})
    stage.execute(
        f"DROP TABLE {things.name}; DELETE FROM system_collections WHERE collection = "
        f"'{things.name}'"
    )
    body = {"collection": things.name, "schema": {}, "fields": [field("title", "string")]}
    assert admin.post("/collections", body).status == 200
    things.add({"title": "new"})
    assert [
        revision["data"]["title"] for revision in admin.get(f"{things.path}/1/revisions").data
    ] == ["new"]
