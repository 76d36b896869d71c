"""/collections: tables, folders, singletons and their settings."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest

from tests.client import Client


def make(api: Client, name: str, *fields: dict[str, Any], **more: object) -> Any:
    return api.post(
        "/collections", {"collection": name, "schema": {}, "fields": list(fields), **more}
    ).data


def names(api: Client) -> set[str]:
    return {record["collection"] for record in api.get("/collections").data}


def test_a_collection_without_fields_gets_an_id_that_counts_up(api: Client) -> None:
    record = make(api, "articles")
    assert record["schema"] == {"name": "articles", "comment": None}
    (key,) = api.get("/fields/articles").data
    assert (key["field"], key["type"]) == ("id", "integer")
    assert key["schema"]["is_primary_key"]
    assert key["schema"]["has_auto_increment"]
    assert [api.post("/items/articles", {}).data["id"] for _ in range(2)] == [1, 2]


def test_a_collection_is_made_with_its_fields_and_its_settings(api: Client) -> None:
    title = {
        "field": "title",
        "type": "string",
        "meta": {"note": "Shown on top"},
        "schema": {"max_length": 80},
    }
    order = {"field": "order", "type": "integer"}
    meta = {"icon": "article", "color": "#6644FF", "sort_field": "order", "hidden": True}
    record = make(api, "articles", title, order, meta=meta)
    assert meta.items() <= record["meta"].items()
    assert record == api.get("/collections/articles").data
    assert [field["field"] for field in api.get("/fields/articles").data] == [
        "id",
        "title",
        "order",
    ]
    assert api.get("/fields/articles/title").data["meta"]["note"] == "Shown on top"


def test_every_documented_key_of_meta_is_answered(api: Client) -> None:
    make(api, "articles")
    expected = """collection icon color note display_template hidden singleton translations
    archive_field archive_value
        unarchive_value sort_field sort group collapse archive_app_filter accountability
        item_duplication_fields
        preview_url versioning searchable"""
    assert api.get("/collections/articles").data["meta"].keys() == set(expected.split())


@pytest.mark.quick(2)
@pytest.mark.parametrize(
    ("type_name", "key"),
    [
        ("integer", 7),
        ("bigInteger", 2**62),
        ("string", "a/b"),
        ("uuid", "0f0e0d0c-0b0a-4909-8807-060504030201"),
    ],
)
def test_each_kind_of_primary_key_works(api: Client, type_name: str, key: object) -> None:
    make(api, "things", {"field": "code", "type": type_name, "schema": {"is_primary_key": True}})
    assert api.post("/items/things", {"code": key}).data == {"code": key}
    again = api.post("/items/things", {"code": key})
    assert again.codes == ["RECORD_NOT_UNIQUE"]


def test_a_uuid_key_is_made_when_none_is_sent(api: Client) -> None:
    make(api, "things", {"field": "id", "type": "uuid", "schema": {"is_primary_key": True}})
    assert len(api.post("/items/things", {}).data["id"]) == 36


def test_a_folder_is_a_record_without_a_table(api: Client, dsn: str) -> None:
    record = api.post("/collections", {"collection": "blog", "meta": {"icon": "folder"}}).data
    assert record["schema"] is None
    assert api.get("/fields/blog").data == []
    assert api.get("/items/blog").codes == ["NOT_FOUND"]
    assert api.get("/items/blog/1").codes == ["NOT_FOUND"]
    assert api.post("/items/blog", {}).codes == ["NOT_FOUND"]
    refused = api.post("/fields/blog", {"field": "title", "type": "string"})
    assert (refused.status, refused.codes) == (400, ["INVALID_PAYLOAD"])
    with psycopg.connect(dsn) as connection:
        assert connection.execute("SELECT to_regclass('blog')").fetchone() == (None,)
    assert api.delete("/collections/blog").status == 204
    assert "blog" not in names(api)


def test_a_singleton_is_one_object_with_its_defaults_until_it_is_written(api: Client) -> None:
    fields: list[dict[str, Any]] = [
        {"field": "title", "type": "string", "schema": {"default_value": "Welcome"}},
        {"field": "size", "type": "integer"},
    ]
    make(api, "home", *fields, meta={"singleton": True})
    assert api.get("/items/home").data == {"id": None, "title": "Welcome", "size": None}
    assert api.post("/items/home", {"title": "x"}).status == 404
    assert api.patch("/items/home", {"size": 3}).data == {"id": 1, "title": "Welcome", "size": 3}
    assert api.patch("/items/home", {"size": 4}).data["id"] == 1
    assert api.get("/items/home/1").status == 404


def test_a_collection_may_turn_into_a_singleton_and_back(api: Client) -> None:
    make(api, "home")
    api.patch("/collections/home", {"meta": {"singleton": True}})
    assert isinstance(api.get("/items/home").data, dict)
    api.patch("/collections/home", {"meta": {"singleton": False}})
    assert api.get("/items/home").data == []


def test_settings_change_and_what_is_not_sent_stays(api: Client) -> None:
    make(api, "articles", meta={"icon": "article", "note": "first"})
    changed = {
        "meta": {"note": None, "translations": [{"language": "de-DE", "translation": "Artikel"}]}
    }
    meta = api.patch("/collections/articles", changed).data["meta"]
    assert (meta["icon"], meta["note"]) == ("article", None)
    assert meta["translations"] == changed["meta"]["translations"]
    comment = api.patch(
        "/collections/articles", {"schema": {"comment": 'it\'s 100 % "mine"'}}
    ).data["schema"]
    assert comment["comment"] == 'it\'s 100 % "mine"'


@pytest.mark.release
def test_the_record_that_was_read_may_be_sent_back_whole_and_changes_nothing(
    api: Client, dsn: str
) -> None:
    make(
        api,
        "articles",
        {"field": "n", "type": "integer"},
        meta={"sort_field": "n", "item_duplication_fields": ["n"]},
    )
    api.post("/collections", {"collection": "folder"})
    with psycopg.connect(dsn) as connection:
        connection.execute("CREATE TABLE elsewhere (id int PRIMARY KEY)")
        connection.execute("CREATE VIEW seen AS SELECT 1 AS id")
    api.post("/utils/cache/clear")
    for record in [
        record
        for record in api.get("/collections").data
        if not record["collection"].startswith("system_")
    ]:
        assert api.patch(f"/collections/{record['collection']}", record).data == record
    records = [
        api.get(f"/collections/{name}").data for name in ("articles", "folder", "elsewhere", "seen")
    ]
    assert api.patch("/collections", records).data == records
    assert records[2]["meta"] is records[3]["meta"] is None


@pytest.mark.release
def test_several_collections_change_together_or_not_at_all(api: Client) -> None:
    make(api, "a"), make(api, "b")
    changed = [{"collection": "a", "meta": {"sort": 1}}, {"collection": "b", "meta": {"sort": 2}}]
    assert [record["meta"]["sort"] for record in api.patch("/collections", changed).data] == [1, 2]
    changed = [
        {"collection": "a", "meta": {"sort": 7}},
        {"collection": "nowhere", "meta": {"sort": 8}},
    ]
    assert api.patch("/collections", changed).status == 404
    assert api.get("/collections/a").data["meta"]["sort"] == 1
    assert api.patch("/collections", [changed[0], changed[0]]).codes == ["INVALID_PAYLOAD"]


@pytest.mark.release
def test_collections_stand_in_groups_that_exist_and_do_not_go_round(api: Client, dsn: str) -> None:
    api.post("/collections", {"collection": "outer"})
    api.post("/collections", {"collection": "inner", "meta": {"group": "outer"}})
    make(api, "leaf", meta={"group": "inner"})
    for group in ("nowhere", "leaf", "inner"):
        answer = api.patch("/collections/inner", {"meta": {"group": group}})
        assert (answer.status, answer.errors[0]["code"]) == (400, "INVALID_PAYLOAD"), group
    round_about = [
        {"collection": "outer", "meta": {"group": "leaf"}},
        {"collection": "leaf", "meta": {"note": "x"}},
    ]
    assert api.patch("/collections", round_about).status == 400
    assert api.get("/collections/outer").data["meta"]["group"] is None
    with psycopg.connect(dsn) as connection:
        connection.execute("CREATE TABLE elsewhere (id int PRIMARY KEY)")
    api.post("/utils/cache/clear")
    assert (
        api.patch("/collections/outer", {"meta": {"group": "elsewhere"}}).data["meta"]["group"]
        == "elsewhere"
    )
    api.delete("/collections/inner")
    assert api.get("/collections/leaf").data["meta"]["group"] is None


def test_a_deleted_collection_takes_everything_that_speaks_of_it_along(
    api: Client, dsn: str
) -> None:
    make(api, "authors")
    make(api, "articles", {"field": "author", "type": "integer"})
    api.post(
        "/relations",
        {
            "collection": "articles",
            "field": "author",
            "related_collection": "authors",
            "meta": {"one_field": "articles"},
        },
    )
    key = api.post("/items/authors", {}).data["id"]
    api.post("/items/articles", {"author": key})
    with psycopg.connect(dsn) as connection:
        connection.execute(
            "INSERT INTO system_permissions (collection, action) VALUES ('authors', 'read')"
        )
        connection.execute("INSERT INTO system_presets (collection) VALUES ('authors')")
        connection.execute("INSERT INTO system_shares (collection, item) VALUES ('authors', '1')")
        connection.execute(
            "INSERT INTO system_activity (collection, item, action) VALUES ('authors', '1', "
            "'create')"
        )
        connection.execute(
            "INSERT INTO system_revisions (collection, item, activity) VALUES ('authors', '1', 1)"
        )
    assert api.delete("/collections/authors").status == 204
    assert api.get("/items/articles").data == [{"id": 1, "author": key}]
    assert api.get("/relations/articles/author").status == 404
    assert api.get("/fields/articles/author").data["schema"]["foreign_key_table"] is None
    with psycopg.connect(dsn) as connection:
        for table in ("collections", "fields", "permissions", "presets", "shares"):
            rows = connection.execute(
                psycopg.sql.SQL("SELECT count(*) FROM {} WHERE collection = 'authors'").format(
                    psycopg.sql.Identifier(f"system_{table}")
                )
            ).fetchone()
            assert rows == (0,), table


@pytest.mark.release
def test_a_deleted_collection_takes_the_lists_of_its_rows_along(api: Client) -> None:
    make(api, "authors")
    make(api, "articles", {"field": "author", "type": "integer"})
    relation = {"collection": "articles", "field": "author", "related_collection": "authors"}
    api.post("/relations", {**relation, "meta": {"one_field": "articles"}})
    api.delete("/collections/articles")
    assert [field["field"] for field in api.get("/fields/authors").data] == ["id"]
    make(api, "articles", {"field": "author", "type": "integer"})
    assert api.get("/relations/articles").data == []


def test_a_table_that_a_view_needs_is_not_dropped(api: Client, dsn: str) -> None:
    make(api, "articles")
    with psycopg.connect(dsn) as connection:
        connection.execute("CREATE VIEW latest AS SELECT * FROM articles")
    answer = api.delete("/collections/articles")
    assert (answer.status, answer.codes) == (400, ["INVALID_PAYLOAD"])
    assert "articles" in names(api)


@pytest.mark.quick(1)
@pytest.mark.parametrize(
    "name", ["select", "order", "User", "percent_", "a" * 63, "system", "null", "table"]
)
def test_names_that_sql_reserves_work(admin: Client, name: str) -> None:
    make(admin, name, {"field": "where", "type": "string"}, {"field": "Group", "type": "integer"})
    item = admin.post(f"/items/{name}", {"where": "x", "Group": 3}).data
    assert item == {"id": 1, "where": "x", "Group": 3}
    assert admin.get(f"/items/{name}?filter[where]=x&sort=-Group").data == [item]
    assert admin.delete(f"/collections/{name}").status == 204


@pytest.mark.parametrize(
    "name",
    [
        *(
            "",
            "1st",
            "_x",
            "a" * 64,
            "a b",
            'a"b',
            "a%b",
            "a;b",
            "a'b",
            "a.b",
            "naïve",
            "🦊",
            "a\u0000b",
        ),
        *("system_x", "System_x", "system_users", "pg_class", "pg_x"),
        *(5, None, ["a"]),
    ],
)
def test_names_that_are_no_names_are_refused(admin: Client, name: object) -> None:
    answer = admin.post("/collections", {"collection": name, "schema": {}})
    assert (answer.status, answer.codes) == (400, ["INVALID_PAYLOAD"])


def test_everything_that_is_wrong_is_reported_at_once_with_its_place(admin: Client) -> None:
    answer = admin.post(
        "/collections",
        {
            "collection": "1",
            "schema": {"unknown": 1},
            "meta": {"color": "red", "hidden": "perhaps", "icon": []},
            "fields": [{"field": "a", "type": "nonsense"}, 7, {"type": "string"}],
        },
    )
    assert answer.status == 400
    assert [error["field"] for error in answer.errors] == [
        "collection",
        "meta.color",
        "meta.hidden",
        "meta.icon",
        "schema.unknown",
        "fields[0].type",
        "fields[1]",
        "fields[2].field",
    ]


@pytest.mark.parametrize(
    "change",
    [
        {"fields": {}},
        {"fields": [{"field": "a", "type": "string"}, {"field": "a", "type": "text"}]},
        {
            "fields": [
                {"field": n, "type": "uuid", "schema": {"is_primary_key": True}} for n in ("a", "b")
            ]
        },
        {"fields": [{"field": "a", "type": "json", "schema": {"is_primary_key": True}}]},
        {"fields": [{"field": "id", "type": "string"}]},
        {"fields": [{"field": "ctid", "type": "string"}]},
        {"fields": [{"field": "a", "type": "string"}], "schema": None},
        {"fields": [{"field": f"f{n}", "type": "integer"} for n in range(5_000)]},
        {"schema": "x"},
        {"meta": []},
        {"meta": {"sort_field": "nowhere"}},
        {"meta": {"archive_field": "nowhere"}},
        {"meta": {"group": "nowhere"}},
        {"meta": {"group": "things"}},
        {"meta": {"sort": 10**20}},
        {"meta": {"sort": 2**40}},
        {"meta": {"accountability": "some"}},
        {"meta": {"collapse": None}},
    ],
)
def test_a_wrong_definition_is_refused_and_leaves_nothing(
    admin: Client, change: dict[str, object]
) -> None:
    answer = admin.post("/collections", {"collection": "things", "schema": {}, **change})
    assert answer.status == 400, answer.text
    assert "things" not in names(admin)


@pytest.mark.parametrize(
    "raw", ["", "{", "[]", "null", '"x"', '{"collection": NaN}', "\xff", "[" * 100_000]
)
def test_a_body_that_is_no_object_is_refused(admin: Client, raw: str) -> None:
    answer = admin.send("POST", "/collections", raw=raw.encode("latin-1"))
    assert (answer.status, answer.codes) == (400, ["INVALID_PAYLOAD"])


def test_a_collection_that_is_there_is_not_made_again(api: Client) -> None:
    make(api, "articles")
    api.post("/items/articles", {})
    answer = api.post("/collections", {"collection": "articles", "schema": {}})
    assert (answer.status, answer.codes) == (400, ["INVALID_PAYLOAD"])
    assert len(api.get("/items/articles").data) == 1


def test_unknown_collections_are_not_found(admin: Client) -> None:
    for answer in (
        admin.get("/collections/nowhere"),
        admin.patch("/collections/nowhere", {"meta": {}}),
        admin.delete("/collections/nowhere"),
        admin.get("/collections/a%00b"),
        admin.get("/collections/%22%25%3B🦊"),
    ):
        assert (answer.status, answer.codes) == (404, ["NOT_FOUND"]), answer


def test_only_administrators_see_and_change_structure(api: Client, anonymous: Client) -> None:
    make(api, "articles")
    for method, path in (
        ("GET", "/collections"),
        ("GET", "/collections/articles"),
        ("GET", "/collections/nowhere"),
        ("POST", "/collections"),
        ("PATCH", "/collections/articles"),
        ("DELETE", "/collections/articles"),
        ("POST", "/fields/articles"),
        ("DELETE", "/relations/articles/x"),
    ):
        body = {"collection": "b", "schema": {}} if method in ("POST", "PATCH") else None
        answer = anonymous.send(method, path, body)
        assert (answer.status, answer.codes) == (403, ["FORBIDDEN"]), (method, path)
    assert names(api) >= {"articles"}
