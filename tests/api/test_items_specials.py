"""Fields that fill themselves, places in a manual order, and what is hashed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from cms.database.connections import Database, Transaction
from cms.hashing.passwords import Passwords
from tests.client import Client
from tests.statements import counted
from tests.things import Json, Stage, field, table


def test_new_items_get_the_next_places_in_the_manual_order(admin: Client) -> None:
    things = table(admin, field("rank", "integer"), field("a", "string"), sort_field="rank")
    assert [item["rank"] for item in things.add({"a": "x"})] == [1]
    assert [item["rank"] for item in things.add({"a": "y"}, {"a": "z"})] == [2, 3]
    assert [item["rank"] for item in things.add({"rank": 10}, {"a": "w"}, {})] == [10, 5, 6]
    assert admin.post(things.path, {}).data["rank"] == 11
    assert admin.post(things.path, {"rank": None}).data["rank"] is None


def test_a_change_sets_automatic_fields_only_when_it_writes_anything(admin: Client) -> None:
    me = admin.get("/users/me").data
    things = table(
        admin,
        field("a", "string"),
        field("at", "timestamp", special="date-updated"),
        field("who", "uuid", special="user-updated"),
        field("role", "uuid", special="role-updated"),
    )
    things.add({"a": "x"})
    assert admin.patch(f"{things.path}/1", {}).data == {
        "id": 1,
        "a": "x",
        "at": None,
        "who": None,
        "role": None,
    }
    changed = admin.patch(f"{things.path}/1", {"a": "y", "who": None}).data
    assert changed["at"] > "2020"
    assert changed["who"] == me["id"]
    assert changed["role"] is not None


def test_whoever_makes_an_item_and_their_role_are_written_down(admin: Client) -> None:
    me = admin.get("/users/me").data
    things = table(
        admin,
        field("who", "uuid", special="user-created"),
        field("role", "uuid", special="role-created"),
    )
    assert things.add({}, {"who": None})[1] == {"id": 2, "who": me["id"], "role": me["role"]}


def test_an_object_at_a_user_is_a_link_or_a_change(stage: Stage, admin: Client) -> None:
    me = admin.get("/users/me").data["id"]
    things = table(admin, field("owner", "uuid"))
    relation = {"collection": things.name, "field": "owner", "related_collection": "system_users"}
    assert admin.post("/relations", relation).status == 200
    assert admin.post(things.path, {"owner": {"id": me}}).data["owner"] == me
    changed = admin.post(
        f"{things.path}?fields=owner.first_name", {"owner": {"id": me, "first_name": "x"}}
    )
    assert changed.data == {"owner": {"first_name": "x"}}
    for name in ("system_activity", "system_fields"):
        assert admin.post(f"/items/{name}", {}).status == 403


def test_passwords_are_hashed_before_the_transaction_opens(
    admin: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    hashed_codes = table(admin, field("code", "hash", special="hash"), field("next", "integer"))
    body = {
        "collection": hashed_codes.name,
        "field": "next",
        "related_collection": hashed_codes.name,
    }
    assert admin.post("/relations", body).status == 200
    happened: list[str] = []
    hashed = Passwords.hashed
    transaction = Database.transaction

    def noting_hashed(own: Passwords, text: str) -> str:
        happened.append("hashed")
        return hashed(own, text)

    def noting_transaction(self: Database) -> Any:
        happened.append("opened")
        return transaction(self)

    monkeypatch.setattr(Passwords, "hashed", noting_hashed)
    monkeypatch.setattr(Database, "transaction", noting_transaction)
    sent: Json = {"code": "a", "next": {"code": "b"}}
    assert admin.post(f"{hashed_codes.path}?fields=code", sent).data == {"code": "**********"}
    assert admin.patch(hashed_codes.path, {"keys": [1], "data": sent}).status == 200
    assert admin.post(f"{hashed_codes.path}?fields=code", {"code": "c"}).data == {
        "code": "**********"
    }
    assert happened == [*["hashed", "hashed", "opened"] * 2, "hashed"]


def test_one_item_is_one_statement_and_no_transaction(
    admin: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    things = table(admin, field("a", "string"))
    admin.post(things.path, {"a": "w"})  # the first request of a process loads structure and caller
    monkeypatch.delattr(Transaction, "execute")
    with counted(monkeypatch) as statements:
        admin.post(things.path, {"a": "x"})
        admin.post(things.path, [{"a": "y"}, {"a": "z"}])
        assert admin.patch(f"{things.path}/2", {"a": "X"}).data == {"id": 2, "a": "X"}
        assert admin.delete(f"{things.path}/3").status == 204
    assert len(statements) == 4
    assert things.column("a") == ["w", "X", "z"]


def test_an_answer_that_leads_back_shows_what_was_written(stage: Stage, admin: Client) -> None:
    nodes = table(admin, field("name", "string"), field("above", "integer"))
    relation = {
        "collection": nodes.name,
        "field": "above",
        "related_collection": nodes.name,
        "meta": {"one_field": "below"},
    }
    assert admin.post("/relations", relation).status == 200
    nodes.add({"name": "a"})
    path = f"{nodes.path}?fields=name,above.name,above.below.name"
    assert admin.post(path, {"name": "b", "above": 1}).data == {
        "name": "b",
        "above": {"name": "a", "below": [{"name": "b"}]},
    }
    itself = admin.patch(f"{nodes.path}/1?fields=name,above.name", {"name": "A", "above": 1}).data
    assert itself == {"name": "A", "above": {"name": "A"}}


def test_a_trigger_after_the_statement_is_seen_in_the_answer(stage: Stage, admin: Client) -> None:
    stage.execute(
        "CREATE TABLE late (id serial PRIMARY KEY, a text);"
        "CREATE FUNCTION late() RETURNS trigger LANGUAGE plpgsql AS"
        " $$BEGIN UPDATE late SET a = NEW.a || '!' WHERE id = NEW.id AND a NOT LIKE '%!'; "
        "RETURN NULL; END$$;"
        "CREATE TRIGGER late AFTER INSERT ON late FOR EACH ROW EXECUTE FUNCTION late()"
    )
    assert admin.post("/items/late", {"a": "x"}).data == {"id": 1, "a": "x!"}


def test_a_key_that_only_the_database_makes_can_name_an_item_and_is_ignored_in_a_new_one(
    stage: Stage, admin: Client
) -> None:
    stage.execute(
        "CREATE TABLE strict (id integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY, a text)"
    )
    assert admin.post("/items/strict", [{"a": "x"}, {"id": None, "a": "y"}]).data[1] == {
        "id": 2,
        "a": "y",
    }
    assert admin.patch("/items/strict", [{"id": 2, "a": "z"}]).data == [{"id": 2, "a": "z"}]
    assert admin.post("/items/strict", {"id": 5}).data == {"id": 3, "a": None}


@pytest.mark.release
def test_one_statement_writes_nothing_under_a_structure_that_has_moved_on(
    make_client: Callable[..., Client], admin_token: str
) -> None:
    here, there = (make_client().bearing(admin_token) for _ in range(2))
    things = table(here, field("a", "string"))
    things.add({"a": "x"})
    writes: list[tuple[str, str, Json | None]] = [
        ("POST", "", {"a": "y"}),
        ("PATCH", "/1", {"a": "z"}),
        ("DELETE", "/1", None),
    ]
    for number, (method, path, body) in enumerate(writes):
        assert there.post(f"/fields/{things.name}", field(f"f{number}", "string")).status == 200
        assert here.send(method, things.path + path, body).status in (200, 204)
    assert things.column("a") == ["y"]
    activities = here.get("/activity", **{"filter[collection]": things.name, "sort": "id"}).data
    assert [activity["action"] for activity in activities] == [
        "create",
        "create",
        "update",
        "delete",
    ]
    revision = here.get("/revisions", **{"filter[collection]": things.name, "sort": "-id"}).data[0]
    assert revision["data"] == {"id": 1, "a": "z", "f0": None, "f1": None, "f2": None}


def test_texts_and_numbers_of_other_tables_are_cast_as_their_fields_define(
    stage: Stage, admin: Client
) -> None:
    stage.execute(
        "CREATE TABLE older (id integer PRIMARY KEY, told text, ready smallint, open bigint, "
        "tags varchar(50))"
    )
    for name, special in (
        ("told", "cast-json"),
        ("ready", "cast-boolean"),
        ("open", "cast-boolean"),
    ):
        assert admin.patch(f"/fields/older/{name}", {"meta": {"special": [special]}}).status == 200
    older = {"id": 1, "told": {"a": [1, "b"]}, "ready": True, "open": False, "tags": "x"}
    assert admin.post("/items/older", older).data == older
    assert stage.value("SELECT (told, ready, open)::text FROM older") == '("{""a"":[1,""b""]}",1,0)'
    assert admin.get("/items/older", **{"filter[ready]": "true", "fields": "told"}).data == [
        {"told": {"a": [1, "b"]}}
    ]
    assert admin.patch("/items/older/1", {"ready": False, "told": []}).data == older | {
        "ready": False,
        "told": [],
    }
    assert admin.get("/items/older", **{"filter[told][_empty]": "true"}).data[0]["id"] == 1
    for values, ids in (("true", []), ("false,true", [1])):
        query = {"filter[ready][_in]": values, "fields": "id"}
        assert [item["id"] for item in admin.get("/items/older", **query).data] == ids
    assert admin.post("/items/older", {"id": 2, "ready": 5}).status == 400
    last = admin.get("/revisions", **{"filter[collection]": "older", "sort": "-id"}).data[0]
    assert last["delta"] == {"ready": False, "told": []}


@pytest.mark.quick(1)
@pytest.mark.parametrize("value", ["plain", "", "{", "NaN"])
def test_a_text_that_is_no_json_is_not_taken_for_it(
    stage: Stage, admin: Client, value: str
) -> None:
    words = table(admin, field("told", "text"), field("more", "string"))
    words.add({"told": '{"a": 1}'}, {"told": None}, {"told": value})
    answer = admin.patch(f"/fields/{words.name}/told", {"meta": {"special": ["cast-json"]}})
    assert (answer.codes, answer.errors[0]["field"]) == (["INVALID_PAYLOAD"], "meta.special")
    assert words.column("told") == ['{"a": 1}', None, value]
    seen = f"{words.name}_seen"
    stage.execute(f"CREATE VIEW {seen} AS SELECT * FROM {words.name}")
    assert admin.patch(f"/fields/{seen}/told", {"meta": {"special": ["cast-json"]}}).codes == [
        "INVALID_PAYLOAD"
    ]
    assert admin.patch(f"{words.path}/3", {"told": "[]"}).status == 200
    for name in (words.name, seen):
        assert (
            admin.patch(f"/fields/{name}/told", {"meta": {"special": ["cast-json"]}}).status == 200
        )
        assert [item["told"] for item in admin.get(f"/items/{name}?sort=id").data] == [
            {"a": 1},
            None,
            [],
        ]


def test_a_call_has_only_so_many_secrets_hashed(admin: Client) -> None:
    hashed_codes = table(admin, field("code", "hash", special="hash"))
    assert len(hashed_codes.add(*({"code": str(number)} for number in range(100)))) == 100
    answer = admin.post(hashed_codes.path, [{"code": str(number)} for number in range(101)])
    assert (answer.status, answer.codes) == (400, ["INVALID_PAYLOAD"])
    items: tuple[object, ...] = ({"code": "x"}, {"code": "x"}, [{"code": "x"}] * 99)
    creates = [
        {"method": "create", "collection": hashed_codes.name, "data": item} for item in items
    ]
    assert admin.post("/batch", {"operations": creates}).status == 400
    assert len(hashed_codes.get(limit=-1).data) == 100
