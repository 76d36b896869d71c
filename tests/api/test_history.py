"""What writes leave in the history."""

from __future__ import annotations

import pytest

from tests.client import Client
from tests.things import Json, Stage, Table, field, table

pytestmark = pytest.mark.usefixtures("nested_collections")


def activities(admin: Client, collection: str) -> list[Json]:
    entries: list[Json] = admin.get(
        "/activity", **{"filter[collection]": collection, "sort": "id", "limit": -1}
    ).data
    return entries


def revisions(admin: Client, collection: str) -> list[Json]:
    entries: list[Json] = admin.get(
        "/revisions", **{"filter[collection]": collection, "sort": "id", "limit": -1}
    ).data
    return entries


def test_a_create_leaves_an_activity_and_a_revision_with_the_new_row(admin: Client) -> None:
    books = table(
        admin, field("title", "string"), field("price", "decimal"), field("made", "timestamp")
    )
    me = admin.get("/users/me").data["id"]
    sent = {"title": 'a "b"', "made": "2024-01-02T03:04:05Z"}
    item = admin.send(
        "POST", books.path, sent, **{"User-Agent": "tests/1", "Origin": "http://here"}
    ).data
    (activity,) = activities(admin, books.name)
    (revision,) = revisions(admin, books.name)
    assert (activity["action"], activity["user"], activity["item"], activity["comment"]) == (
        "create",
        me,
        "1",
        None,
    )
    assert (activity["ip"], activity["user_agent"], activity["origin"]) == (
        "127.0.0.1",
        "tests/1",
        "http://here",
    )
    assert activity["timestamp"] > "2020"
    assert revision["data"] == revision["delta"] == item
    assert (revision["activity"], revision["item"], revision["parent"]) == (
        activity["id"],
        "1",
        None,
    )


def test_an_update_leaves_the_whole_row_and_what_changed(admin: Client) -> None:
    books = table(
        admin,
        field("title", "string"),
        field("tags", "json"),
        field("words", "csv"),
        field("n", "float"),
    )
    books.add({"title": "a", "tags": {"x": 1}, "words": ["p"], "n": 1})
    changed = admin.patch(
        f"{books.path}/1", {"title": "b", "tags": {"x": 1}, "words": ["p", "q"], "n": 1.0}
    ).data
    last = revisions(admin, books.name)[-1]
    assert last["data"] == changed
    assert last["delta"] == {"title": "b", "words": ["p", "q"]}
    assert [activity["action"] for activity in activities(admin, books.name)] == [
        "create",
        "update",
    ]


def test_an_update_that_changes_nothing_leaves_the_act_but_no_revision(admin: Client) -> None:
    books = table(admin, field("title", "string"))
    books.add({"title": "a"})
    for body in ({"title": "a"}, {}):
        assert admin.patch(f"{books.path}/1", body).status == 200
    assert [activity["action"] for activity in activities(admin, books.name)] == [
        "create",
        "update",
        "update",
    ]
    assert len(revisions(admin, books.name)) == 1


def test_a_delete_leaves_a_last_revision_with_the_row(admin: Client) -> None:
    books = table(admin, field("title", "string"))
    one, *_ = books.add({"title": "a"}, {"title": "b"}, {"title": "c"})
    admin.delete(f"{books.path}/1")
    admin.delete(books.path, [2, 3])
    assert sorted(
        activity["item"]
        for activity in activities(admin, books.name)
        if activity["action"] == "delete"
    ) == [
        "1",
        "2",
        "3",
    ]
    last = {revision["item"]: revision for revision in revisions(admin, books.name)[3:]}
    assert last["1"]["data"] == one
    assert {revision["data"]["title"] for revision in last.values()} == {"a", "b", "c"}
    assert {revision["delta"] for revision in last.values()} == {None}


def test_every_row_of_a_batch_is_in_the_history_with_its_own_row(admin: Client) -> None:
    numbers = table(admin, field("n", "integer"), field("m", "integer"))
    numbers.add(*({"n": n} for n in range(500)), {"m": 1})
    assert [revision["data"]["n"] for revision in revisions(admin, numbers.name)] == [
        *range(500),
        None,
    ]
    admin.patch(numbers.path, [{"id": n, "n": -n} for n in range(1, 501)])
    changed = revisions(admin, numbers.name)[501:]
    assert {revision["item"]: revision["delta"] for revision in changed} == {
        str(n): {"n": -n} for n in range(1, 501)
    }
    items_by_activity = {
        activity["id"]: activity["item"] for activity in activities(admin, numbers.name)
    }
    assert all(
        items_by_activity[revision["activity"]] == revision["item"]
        for revision in revisions(admin, numbers.name)
    )


def test_a_secret_never_enters_the_history(stage: Stage, admin: Client) -> None:
    users = table(
        admin,
        field("name", "string"),
        field("pass", "hash", special="hash"),
        field("pin", "string"),
    )
    admin.patch(f"/fields/{users.name}/pin", {"meta": {"special": ["conceal"]}})
    users.add({"name": "a", "pass": "swordfish", "pin": "first pin"})
    admin.patch(f"{users.path}/1", {"pass": "trout", "pin": "second pin"})
    admin.patch(f"{users.path}/1", {"pin": "third pin", "name": "b"})
    admin.delete(f"{users.path}/1")
    history = revisions(admin, users.name)
    assert [revision["delta"] for revision in history] == [
        {"id": 1, "name": "a"},
        {"name": "b"},
        None,
    ]
    # The words are none that ids and times of other revisions could have by chance.
    kept = stage.value("SELECT string_agg(concat(data, delta), ' ') FROM system_revisions")
    assert not any(
        word in kept
        for word in ("swordfish", "first pin", "trout", "second pin", "third pin", "argon2")
    )


@pytest.mark.parametrize(
    ("accountability", "counts"), [("all", (4, 3)), ("activity", (4, 0)), (None, (0, 0))]
)
def test_the_accountability_of_a_collection_decides_what_is_recorded(
    admin: Client, accountability: str | None, counts: tuple[int, int]
) -> None:
    books = table(admin, field("title", "string"), accountability=accountability)
    books.add({"title": "a"})
    admin.patch(f"{books.path}/1", {"title": "b"})
    admin.patch(books.path, {"keys": [1], "data": {}})
    admin.delete(f"{books.path}/1")
    assert (len(activities(admin, books.name)), len(revisions(admin, books.name))) == counts


def test_tables_that_nobody_spoke_of_have_a_history(stage: Stage, admin: Client) -> None:
    stage.execute(
        'CREATE TABLE odd (code text PRIMARY KEY, "n%{0}" integer, "item" text, "data" text)'
    )
    item = admin.post("/items/odd", {"code": "x y", "n%{0}": 5, "item": "i", "data": "d"}).data
    admin.patch("/items/odd/x%20y", {"item": "j"})
    first, second = revisions(admin, "odd")
    assert (first["item"], first["data"]) == ("x y", item)
    assert second["delta"] == {"item": "j"}


def test_what_triggers_and_expressions_change_is_in_the_delta(stage: Stage, admin: Client) -> None:
    stage.execute(
        "CREATE TABLE shouted (id serial PRIMARY KEY, a text, b text, "
        "c text GENERATED ALWAYS AS (a || '?') STORED);"
        "CREATE FUNCTION shout() RETURNS trigger LANGUAGE plpgsql AS $$BEGIN NEW.b := NEW.a || "
        "'!'; RETURN NEW; END$$;"
        "CREATE TRIGGER shout BEFORE INSERT OR UPDATE ON shouted FOR EACH ROW EXECUTE FUNCTION "
        "shout()"
    )
    assert admin.post("/items/shouted", {"a": "x"}).data == {
        "id": 1,
        "a": "x",
        "b": "x!",
        "c": "x?",
    }
    admin.patch("/items/shouted/1", {"a": "y"})
    assert revisions(admin, "shouted")[-1]["delta"] == {"a": "y", "b": "y!", "c": "y?"}


def test_a_refused_write_leaves_nothing(admin: Client) -> None:
    books = table(admin, field("title", "string", is_unique=True))
    books.add({"title": "a"})
    for answer in (
        admin.post(books.path, {"title": "a"}),
        admin.post(books.path, [{"title": "b"}, {"title": "a"}]),
        admin.patch(f"{books.path}/9", {"title": "c"}),
        admin.delete(books.path, [1, 9]),
        admin.delete(f"{books.path}/9"),
    ):
        assert answer.status in (400, 404), answer
    assert (len(activities(admin, books.name)), len(revisions(admin, books.name))) == (1, 1)


def test_nested_writes_name_the_revision_of_the_write_around_them(admin: Client) -> None:
    sent = {
        "title": "p",
        "author": {"name": "Ann", "boss": {"name": "Bob"}},
        "comments": [{"text": "a"}, {"text": "b"}],
        "tags": [{"tags_id": {"name": "t"}}],
    }
    key = admin.post("/items/posts", sent).data["id"]
    (root,) = revisions(admin, "posts")
    bob, ann = revisions(admin, "people")
    (link,) = revisions(admin, "posts_tags")
    (tag,) = revisions(admin, "tags")
    assert root["parent"] is None
    assert [revision["parent"] for revision in (ann, link, *revisions(admin, "comments"))] == [
        root["id"]
    ] * 4
    assert (bob["parent"], tag["parent"]) == (ann["id"], link["id"])
    assert bob["data"]["name"] == "Bob"
    admin.patch(f"/items/posts/{key}", {"title": "q", "comments": []})
    update = revisions(admin, "posts")[-1]
    assert [revision["parent"] for revision in revisions(admin, "comments")[2:]] == [
        update["id"]
    ] * 2


def test_a_list_that_stays_as_it_is_leaves_nothing(admin: Client) -> None:
    post = admin.post("/items/posts", {"title": "p", "steps": [{"text": "a"}, {"text": "b"}]}).data
    before = len(activities(admin, "steps"))
    admin.patch(f"/items/posts/{post['id']}", {"steps": post["steps"]})
    assert len(activities(admin, "steps")) == before


def test_a_singleton_has_a_history(admin: Client) -> None:
    site = table(admin, field("title", "string"), singleton=True)
    for title in ("a", "b"):
        admin.patch(site.path, {"title": title})
    assert [revision["delta"] for revision in revisions(admin, site.name)] == [
        {"id": 1, "title": "a"},
        {"title": "b"},
    ]


def test_a_revision_can_be_sent_back(admin: Client) -> None:
    books = table(
        admin, field("title", "string"), field("made", "timestamp"), field("tags", "json")
    )
    books.add({"title": "a", "made": "2024-01-01T00:00:00Z", "tags": [1, "x"]})
    admin.patch(f"{books.path}/1", {"title": "b", "tags": None})
    first = revisions(admin, books.name)[0]["data"]
    assert admin.patch(f"{books.path}/1", first).data == first
    assert Table(admin, books.name).get().data == [first]


@pytest.mark.quick(2)
@pytest.mark.parametrize(
    "change",
    [
        [{"meta": {"special": ["conceal"]}}],
        [{"meta": {"special": ["conceal"]}, "field": "pin"}],
        [{"field": "pin"}, {"meta": {"special": ["conceal"]}}],
    ],
)
def test_a_field_that_becomes_a_secret_leaves_the_revisions(
    admin: Client, change: list[Json]
) -> None:
    notes = table(admin, field("code", "string"), field("note", "json"))
    notes.add({"code": "swordfish", "note": {"b": 1, "a": [2]}})
    admin.patch(f"{notes.path}/1", {"code": "stingray"})
    params = {"filter[collection]": notes.name, "sort": "id", "fields": "data,delta"}
    for step in change:
        field_of = "pin" if step != change[0] and "field" in change[0] else "code"
        assert admin.patch(f"/fields/{notes.name}/{field_of}", step).status == 200
    note = {"b": 1, "a": [2]}
    assert [revision["delta"] for revision in admin.get("/revisions", **params).data] == [
        {"id": 1, "note": note},
        {},
    ]
    assert [revision["data"] for revision in admin.get("/revisions", **params).data] == [
        {"id": 1, "note": note}
    ] * 2


def test_revisions_follow_the_name_of_a_field_and_forget_a_deleted_one(admin: Client) -> None:
    notes = table(admin, field("code", "string"), field("note", "string"))
    notes.add({"code": "one", "note": "swordfish"})
    admin.patch(f"{notes.path}/1", {"code": "two"})
    admin.patch(f"/fields/{notes.name}/code", {"field": "pin"})
    admin.delete(f"/fields/{notes.name}/note")
    admin.post(f"/fields/{notes.name}", {"field": "note", "type": "string"})
    params = {"filter[collection]": notes.name, "sort": "id", "fields": "id,data,delta"}
    first, second = admin.get("/revisions", **params).data
    assert (first["data"], second["delta"]) == ({"id": 1, "pin": "one"}, {"pin": "two"})
    assert admin.post(f"/utils/revert/{first['id']}").data == {"id": 1, "pin": "one", "note": None}
