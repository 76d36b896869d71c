"""What app access shows of the structure: the fields that a permission
names, and no other name in any setting.
"""

from __future__ import annotations

from typing import Any

import pytest

from tests.client import Client
from tests.members import grant, may, member_of, new_role
from tests.things import Stage, field

Json = dict[str, Any]
HIDDEN = "hush"
"""Every name that the caller must not learn holds this word; what it may read does not."""

RULE = {"hush_price": {"_gt": 5}}
SEEN_RULE = {"title": {"_nempty": True}}

COLLECTIONS: dict[str, tuple[Json, list[Json]]] = {
    "hush_vault": ({}, [field("title", "string"), field("code", "string")]),
    "people": ({}, [field("name", "string"), field("hush_salary", "integer")]),
    "books": (
        {
            "archive_field": "hush_state",
            "archive_value": "hush_archived",
            "unarchive_value": "hush_active",
            "sort_field": "hush_rank",
            "display_template": "{{title}} by {{author.name}} {{hush_price}}{{author.hush_salary}}",
            "preview_url": "https://example.com/{{title}}/{{hush_code}}",
        },
        [
            field("title", "string"),
            field("extra", "json"),
            field("author", "integer"),
            field("hush_price", "integer"),
            field("hush_state", "string"),
            field("hush_rank", "integer"),
            field("hush_code", "string"),
            field("hush_key", "integer"),
            field("vault", "integer"),
        ],
    ),
    "shelves": (
        {"archive_field": "state", "archive_value": "old"},
        [field("state", "string"), field("more", "string")],
    ),
}

TITLE_META: Json = {
    "group": "hush_code",
    "validation": {"_and": [{"title": {"_nempty": True}}, RULE]},
    "validation_message": "hush: it depends on the price",
    "conditions": [
        {
            "name": "kept",
            "rule": SEEN_RULE,
            "required": True,
            "options": {"slug": "hush_code", "trim": True},
        },
        {"name": "hush_gone", "rule": {"_or": [SEEN_RULE, RULE]}, "readonly": True},
        {"name": "hush_path", "rule": {"author": {"hush_salary": {"_gt": 1}}}},
    ],
    "options": {
        "placeholder": "A title",
        "template": "{{title}}-{{hush_code}}",
        "fields": ["title", "hush_code", "author.hush_salary"],
        "slug": "hush_code",
        "collection": "hush_vault",
        "columns": ["books.title", "hush_vault.code", "books.hush_code", "hush_vault:code"],
        "filter": {"_and": [{"hush_price": 5}]},
        "nested": {"filter": SEEN_RULE, "hush_state": {"a": 1}},
        "choices": [{"text": "One", "value": "title"}],
        "font": "serif",
    },
    "display_options": {"template": "{{hush_price}}", "format": True},
}


def make_collections(admin: Client) -> None:
    for name, (meta, fields) in COLLECTIONS.items():
        answer = admin.post(
            "/collections", {"collection": name, "schema": {}, "meta": meta, "fields": fields}
        )
        assert answer.status == 200, answer.text
    assert (
        admin.post("/collections", {"collection": "hush_folder", "meta": {"note": "x"}}).status
        == 200
    )
    assert admin.patch("/collections/books", {"meta": {"group": "hush_vault"}}).status == 200
    for name, target, one_field in (
        ("author", "people", "hush_books"),
        ("vault", "hush_vault", "books"),
    ):
        relation = {
            "collection": "books",
            "field": name,
            "related_collection": target,
            "meta": {"one_field": one_field},
        }
        assert admin.post("/relations", relation).status == 200
    sorted_by = {"sort_field": "hush_rank", "junction_field": "hush_key"}
    assert admin.patch("/relations/books/author", {"meta": sorted_by}).status == 200
    copied = ["title", "hush_code", "author.name", "author.hush_salary"]
    assert (
        admin.patch("/collections/books", {"meta": {"item_duplication_fields": copied}}).status
        == 200
    )
    answer = admin.patch("/fields/books/title", {"meta": TITLE_META})
    assert answer.status == 200, answer.text


SEEN = (may("books", "id", "title", "extra", "author", "vault"), may("people", "id", "name"))


@pytest.fixture(scope="module", autouse=True)
def books_with_hidden_names(stage: Stage) -> None:
    make_collections(stage.admin)


@pytest.fixture(scope="module")
def caller(stage: Stage) -> Client:
    return member_of(stage, new_role(stage, *SEEN, app_access=True))


def test_no_hidden_name_is_reported_anywhere(stage: Stage, caller: Client) -> None:
    paths = (
        *("/collections", "/collections/books"),
        *(
            "/fields",
            "/fields/books",
            "/fields/people",
            "/fields/books/title",
            "/fields/books/vault",
        ),
        *("/relations", "/relations/books", "/relations/people", "/relations/books/author"),
    )
    for path in paths:
        assert HIDDEN in stage.admin.get(path).text, path
        answer = caller.get(path)
        assert answer.status == 200, answer
        assert HIDDEN not in answer.text, path


def test_what_may_be_disclosed_is_disclosed(stage: Stage, caller: Client) -> None:
    books = caller.get("/collections/books").data["meta"]
    assert books["display_template"] == "{{title}} by {{author.name}} "
    assert books["item_duplication_fields"] == ["title", "author.name"]
    for name in (
        "archive_field",
        "archive_value",
        "unarchive_value",
        "sort_field",
        "preview_url",
        "group",
    ):
        assert books[name] is None
    title = caller.get("/fields/books/title").data["meta"]
    assert (title["group"], title["validation"], title["validation_message"]) == (None, None, None)
    options = {"trim": True}
    assert title["conditions"] == [
        {"name": "kept", "rule": SEEN_RULE, "required": True, "options": options}
    ]
    assert title["options"] == {
        "placeholder": "A title",
        "template": "{{title}}-",
        "fields": ["title"],
        "columns": ["books.title"],
        "nested": {"filter": SEEN_RULE},
        "choices": [{"text": "One", "value": "title"}],
        "font": "serif",
    }
    assert title["display_options"] == {"template": "", "format": True}
    (relation,) = caller.get("/relations/books").data
    assert (relation["field"], relation["related_collection"]) == ("author", "people")
    for name in ("one_field", "sort_field", "junction_field", "junction_collection"):
        assert relation["meta"][name] is None
    vault = caller.get("/fields/books/vault").data["schema"]
    assert (vault["foreign_key_table"], vault["foreign_key_column"]) == (None, None)


@pytest.mark.parametrize("action", ["read", "create", "update", "delete", "share"])
def test_a_permission_for_any_action_names_fields(stage: Stage, action: str) -> None:
    caller = member_of(
        stage, new_role(stage, may("shelves", "id", "state", action=action), app_access=True)
    )
    assert [row["field"] for row in caller.get("/fields/shelves").data] == ["id", "state"]
    meta = caller.get("/collections/shelves").data["meta"]
    assert (meta["archive_field"], meta["archive_value"]) == ("state", "old")
    assert caller.get("/fields/shelves/more").text == caller.get("/fields/shelves/nowhere").text


def test_a_star_names_all_fields_and_parents_add_theirs(stage: Stage) -> None:
    parent = new_role(stage, may("shelves"), name="Parents")
    child = member_of(stage, new_role(stage, *SEEN, parent=parent, app_access=True))
    assert [row["field"] for row in child.get("/fields/shelves").data] == ["id", "state", "more"]
    assert HIDDEN not in child.get("/fields").text
    reader = member_of(
        stage, new_role(stage, may("books"), may("people"), may("hush_vault"), app_access=True)
    )
    readers_record, all_there_is = (
        client.get("/collections/books").data for client in (reader, stage.admin)
    )
    assert readers_record == all_there_is
    assert reader.get("/fields/books").data == stage.admin.get("/fields/books").data
    assert reader.get("/relations/books").data == stage.admin.get("/relations/books").data


def test_a_permission_that_cannot_be_applied_names_nothing(stage: Stage) -> None:
    role = new_role(
        stage, may("shelves", permissions={"nothing": {"_nonsense": 1}}), *SEEN, app_access=True
    )
    caller = member_of(stage, role)
    assert caller.get("/fields/shelves").status == 403
    assert "shelves" not in caller.get("/collections").text


def test_rows_of_the_structure_show_no_more_behind_a_relation(stage: Stage) -> None:
    """Also where a collection of one's own leads to them."""
    admin = stage.admin
    fields = [field("of", "string"), field("one", "integer"), field("relation", "integer")]
    assert (
        admin.post("/collections", {"collection": "looks", "schema": {}, "fields": fields}).status
        == 200
    )
    targets = {"of": "system_collections", "one": "system_fields", "relation": "system_relations"}
    for name, target in targets.items():
        relation = {"collection": "looks", "field": name, "related_collection": target}
        assert admin.post("/relations", relation).status == 200
    items: list[Json] = [{"of": "books"}, {"of": "hush_vault"}]
    items += [{"one": key} for (key,) in ids(stage, "system_fields")]
    items += [{"relation": key} for (key,) in ids(stage, "system_relations")]
    assert admin.post("/items/looks", items).status == 200
    caller = member_of(stage, new_role(stage, *SEEN, may("looks", "id", *targets), app_access=True))
    answer = caller.get("/items/looks?fields=of.*,one.*,relation.*&limit=-1")
    assert any(row["one"] for row in answer.data)
    assert any(row["of"] and row["of"]["collection"] == "books" for row in answer.data)
    assert HIDDEN not in answer.text.replace('"of":"hush_vault"', "")
    for name in ("archive_field", "sort_field", "display_template"):
        assert caller.get(f"/items/looks?fields=of.{name}").status == 403
    for name in ("options", "validation", "conditions", "group"):
        assert caller.get(f"/items/looks?fields=one.{name}").status == 403


def ids(stage: Stage, table: str) -> list[tuple[int]]:
    ids = stage.value(f"SELECT json_agg(id ORDER BY id) FROM {table}")
    return [(key,) for key in ids]


def test_the_public_role_names_fields_for_who_has_no_role(stage: Stage) -> None:
    structure = (may("system_collections"), may("system_fields"), may("system_relations"))
    grant(stage, None, [*SEEN, *structure])
    try:
        for client in (stage.anonymous, member_of(stage, None)):
            assert [row["field"] for row in client.get("/fields/people").data] == ["id", "name"]
            assert HIDDEN not in client.get("/collections").text
    finally:
        stage.execute("DELETE FROM system_permissions WHERE role IS NULL")
