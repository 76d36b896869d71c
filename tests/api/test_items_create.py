"""POST /items/{collection}."""

from __future__ import annotations

import pytest

from tests.client import Answer, Client
from tests.members import may, member
from tests.things import Json, Stage, Table, field, table


def test_one_object_makes_one_item_with_a_key_of_its_own(admin: Client) -> None:
    books = table(admin, field("title", "string"))
    answer = admin.post(books.path, {"title": "Emma"})
    assert answer.data == {"id": 1, "title": "Emma"}
    assert books.get().data == [{"id": 1, "title": "Emma"}]


def test_an_array_makes_items_in_its_order_whatever_fields_they_name(admin: Client) -> None:
    books = table(admin, field("title", "string"), field("pages", "integer", default_value=7))
    sent: list[Json] = [
        {"title": "a"},
        {"pages": 2},
        {},
        {"pages": None, "title": "b"},
        {"title": "c"},
    ]
    items = books.add(*sent)
    assert [(item["title"], item["pages"]) for item in items] == [
        ("a", 7),
        (None, 2),
        (None, 7),
        ("b", None),
        ("c", 7),
    ]
    assert sorted(item["id"] for item in items) == [1, 2, 3, 4, 5]


def test_an_empty_array_makes_nothing(admin: Client) -> None:
    assert table(admin).add() == []


def test_fields_of_the_query_string_shape_what_is_answered(admin: Client) -> None:
    books = table(admin, field("title", "string"), field("pages", "integer"))
    answer = admin.post(
        f"{books.path}?fields=title&alias[length]=pages&fields=length", {"title": "a", "pages": 3}
    )
    assert answer.data == {"title": "a", "length": 3}
    for query in (
        "fields=nothing",
        "fields=id&alias[a]=nothing",
        "fields=id&deep[nothing][_limit]=1",
    ):
        assert admin.post(f"{books.path}?{query}", {"title": "b"}).status == 400
        assert admin.post(f"{books.path}?{query}", [{"title": "b"}, {"title": "c"}]).status == 400
    assert books.column("title") == ["a"]


def test_a_key_may_be_sent(admin: Client) -> None:
    books = table(admin, field("id", "uuid", is_primary_key=True), field("title", "string"))
    key = "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"
    assert admin.post(books.path, {"id": key.upper(), "title": "a"}).data["id"] == key
    again = admin.post(books.path, {"id": key})
    assert (again.status, again.codes, again.errors[0]["field"]) == (
        400,
        ["RECORD_NOT_UNIQUE"],
        "id",
    )


def test_every_fault_of_every_item_is_reported_in_one_answer_and_nothing_is_made(
    admin: Client,
) -> None:
    books = table(admin, field("title", "string", is_nullable=False), field("pages", "integer"))
    sent = [
        {"title": "a", "pages": "x"},
        {"title": "b"},
        {"pages": 1.5, "colour": 1},
        5,
        {"title": "x" * 256},
    ]
    answer = admin.post(books.path, sent)
    problems = [(fault["code"], fault.get("index"), fault.get("field")) for fault in answer.errors]
    assert problems == [
        ("INVALID_PAYLOAD", 0, "pages"),
        ("INVALID_PAYLOAD", 2, "pages"),
        ("INVALID_PAYLOAD", 2, "colour"),
        ("FAILED_VALIDATION", 2, "title"),
        ("INVALID_PAYLOAD", 3, None),
        ("VALUE_TOO_LONG", 4, "title"),
    ]
    assert answer.status == 400
    assert books.get().data == []


def test_one_row_that_the_database_refuses_refuses_them_all(admin: Client) -> None:
    books = table(admin, field("title", "string", is_unique=True))
    answer = admin.post(books.path, [{"title": "a"}, {"title": "b"}, {"title": "a"}])
    assert (answer.status, answer.codes, answer.errors[0]["field"]) == (
        400,
        ["RECORD_NOT_UNIQUE"],
        "title",
    )
    assert books.get().data == []


def test_what_is_required_must_be_there(admin: Client) -> None:
    books = table(
        admin,
        field("title", "string", is_nullable=False),
        {"field": "isbn", "type": "string", "schema": {}, "meta": {"required": True}},
        field("pages", "integer", is_nullable=False, default_value=1),
    )
    answer = admin.post(books.path, {"title": None})
    assert (answer.status, answer.codes) == (422, ["FAILED_VALIDATION"] * 2)
    assert [(fault["field"], fault["type"]) for fault in answer.errors] == [
        ("title", "required"),
        ("isbn", "required"),
    ]
    assert admin.post(books.path, {"title": "a", "isbn": "b"}).data["pages"] == 1


def test_null_is_no_value_for_a_field_that_takes_none_though_it_has_a_default(
    admin: Client,
) -> None:
    books = table(admin, field("pages", "integer", is_nullable=False, default_value=1))
    answer = admin.post(books.path, {"pages": None})
    assert (answer.status, answer.codes) == (422, ["FAILED_VALIDATION"])
    assert (answer.errors[0]["field"], answer.errors[0]["type"]) == ("pages", "required")


def test_null_for_a_key_that_counts_up_is_as_good_as_nothing(admin: Client) -> None:
    books = table(admin, field("title", "string"))
    assert [
        item["id"] for item in books.add({"id": None, "title": "a"}, {"title": "b"}, {"id": None})
    ] == [1, 2, 3]
    assert admin.post(books.path, {"id": None, "title": "c"}).data["id"] == 4


def test_a_column_too_short_for_a_hash_is_reported_with_its_place(stage: Stage) -> None:
    stage.execute("CREATE TABLE doors (id serial PRIMARY KEY, code varchar(20))")
    stage.execute(
        "INSERT INTO system_fields (collection, field, special) VALUES ('doors', 'code', '{hash}')"
    )
    answer = stage.admin.post("/items/doors", {"code": "x"})
    assert (answer.status, answer.codes) == (400, ["VALUE_TOO_LONG"])
    assert (answer.errors[0]["collection"], answer.errors[0]["field"]) == ("doors", "code")


def test_special_fields_fill_themselves_whatever_is_sent(admin: Client) -> None:
    me = admin.get("/users/me").data
    books = table(
        admin,
        field("key", "uuid", special="uuid"),
        field("made", "timestamp", special="date-created"),
        field("day", "date", special="date-created"),
        field("maker", "uuid", special="user-created"),
        field("changed", "timestamp", special="date-updated"),
    )
    item = books.add(
        {"made": "2000-01-01T00:00:00Z", "maker": "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"}
    )[0]
    assert item["made"] > "2020"
    assert item["day"] == item["made"][:10]
    assert item["maker"] == me["id"]
    assert len(item["key"]) == 36
    assert item["changed"] is None


@pytest.mark.release
def test_ten_thousand_items_are_a_handful_of_statements(admin: Client) -> None:
    books = table(admin, field("n", "integer"))
    items = admin.post(f"{books.path}?fields=n", [{"n": n} for n in range(10_000)]).data
    assert [item["n"] for item in items] == list(range(10_000))
    assert books.read("aggregate[count]=*").data == [{"count": 10_000}]


def test_only_tables_of_the_users_own_take_items(stage: Stage) -> None:
    stage.execute(
        "CREATE TABLE keyless (a text); CREATE TABLE base (id serial PRIMARY KEY, a text, "
        "b text GENERATED ALWAYS AS "
        "(a || '!') STORED); CREATE VIEW seen AS SELECT * FROM base"
    )
    for name in ("keyless", "seen", "system_activity"):
        answer = stage.admin.post(f"/items/{name}", {"a": "x"})
        assert (answer.status, answer.codes) == (403, ["FORBIDDEN"]), name
    assert stage.admin.post("/items/nowhere", {}).codes == ["NOT_FOUND"]
    base = Table(stage.admin, "base")
    # A value for a generated column is ignored.
    assert base.add({"a": "x", "b": "y"}) == [{"id": 1, "a": "x", "b": "x!"}]
    assert stage.admin.get("/items/seen").data == [{"id": 1, "a": "x", "b": "x!"}]


def test_nobody_but_an_administrator_may_create(stage: Stage) -> None:
    books = table(stage.admin, field("title", "string"))
    known, unknown = (
        stage.anonymous.post(path, {"title": "x"}) for path in (books.path, "/items/nowhere")
    )
    assert known.status == unknown.status == 403
    assert known.text == unknown.text


def test_automatic_keys_follow_the_order_of_the_items_whatever_fields_they_name(
    admin: Client,
) -> None:
    things = table(admin, field("a", "string"), field("b", "string"))
    items = things.add({"a": "1"}, {"b": "2"}, {}, {"a": "4"}, {"id": 50}, {"b": "6"})
    assert [item["id"] for item in items] == [1, 2, 3, 4, 50, 5]


def test_of_what_the_database_refuses_the_row_is_reported_that_brought_it(
    stage: Stage, admin: Client
) -> None:
    sign = field("sign", "string", special="conceal", is_unique=True)
    books = table(admin, field("title", "string", is_unique=True), sign, field("shelf", "integer"))
    shelves = table(admin)
    relation = {"collection": books.name, "field": "shelf", "related_collection": shelves.name}
    meta = {"one_field": "books"}
    schema = {"on_delete": "NO ACTION"}
    assert admin.post("/relations", relation | {"meta": meta, "schema": schema}).status == 200
    books.add({"title": "a (b)"})

    def problem(answer: Answer) -> Json:
        assert len(answer.errors) == 1
        return {key: answer.errors[0].get(key) for key in ("code", "index", "path", "value")}

    unique: Json = {"code": "RECORD_NOT_UNIQUE", "index": None, "path": ["title"], "value": "a (b)"}
    assert problem(admin.post(books.path, {"title": "a (b)"})) == unique
    assert problem(admin.post(books.path, [{"title": "x"}, {"title": "a (b)"}])) == unique | {
        "index": 1
    }
    assert problem(admin.post(books.path, [{"title": "y"}, {}, {"title": "y"}])) == unique | {
        "index": 2,
        "value": "y",
    }
    assert (
        problem(admin.patch(f"{books.path}/{books.add({})[0]['id']}", {"title": "a (b)"})) == unique
    )
    secret = admin.post(books.path, [{"title": "t"}, {"sign": "s"}, {"sign": "s"}])
    assert problem(secret) == unique | {"index": 2, "path": ["sign"], "value": None}
    nested = [{"books": []}, {"books": [{"title": "z"}, {"title": "a (b)"}]}]
    assert problem(admin.post(shelves.path, nested)) == unique | {
        "index": 1,
        "path": ["books", 1, "title"],
    }
    missing = admin.post(books.path, [{"title": "s"}, {"shelf": 99}])
    assert problem(missing) == {
        "code": "INVALID_FOREIGN_KEY",
        "index": 1,
        "path": ["shelf"],
        "value": 99,
    }
    presets = {"title": "a (b)"}
    own = may(books.name, "id", "shelf")
    caller = member(
        stage,
        own,
        *(may(books.name, action=action, presets=presets) for action in ("create", "update")),
    )
    assert problem(caller.post(books.path, {"shelf": None})) == unique | {"value": None}
    assert problem(caller.post(books.path, {"title": "a (b)"})) == unique
    assert problem(
        caller.patch(f"{books.path}/{books.add({})[0]['id']}", {"shelf": None})
    ) == unique | {"value": None}
    stage.execute(
        f"INSERT INTO {shelves.name} VALUES (5); UPDATE {books.name} SET shelf = 5 WHERE id = 1"
    )
    assert problem(admin.delete(f"{shelves.path}/5"))["value"] is None
