"""Filters and rules over the items that use an item: `$FOLLOW`."""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import quote

import pytest

from tests.client import Client
from tests.members import may, member
from tests.things import Stage, field, make_collections

COLLECTIONS = {
    "articles": [
        field("title", "string"),
        field("status", "string"),
        field("image", "uuid"),
        field("lead", "integer"),
    ],
    "tags": [field("name", "string")],
    "headings": [field("text", "string")],
    "paras": [field("text", "string")],
    "sections": [
        field("article", "integer"),
        field("item", "string"),
        field("kind", "string"),
        field("visible", "boolean"),
    ],
}
RELATIONS: list[tuple[str, str, str | None, dict[str, Any]]] = [
    ("articles", "tags", "tags", {"junction_collection": "articles_tags", "one_field": None}),
    ("articles", "image", "system_files", {}),
    ("articles", "lead", "paras", {}),
    ("sections", "article", "articles", {"one_field": "sections"}),
    (
        "sections",
        "item",
        None,
        {"one_collection_field": "kind", "one_allowed_collections": ["headings", "paras"]},
    ),
]
ROWS: dict[str, list[dict[str, Any]]] = {
    "paras": [{"text": "P1"}, {"text": "P2"}, {"text": "P3"}],
    "headings": [{"text": "H1"}, {"text": "H2"}],
    "articles": [
        {"title": "A1", "status": "published", "lead": 3},
        {"title": "A2", "status": "draft"},
    ],
    "tags": [{"name": "x"}, {"name": "y"}, {"name": "z"}],
    "articles_tags": [
        {"articles_id": 1, "tags_id": 1},
        {"articles_id": 2, "tags_id": 1},
        {"articles_id": 2, "tags_id": 2},
    ],
    "sections": [
        {"article": 1, "item": "1", "kind": "headings", "visible": True},
        {"article": 2, "item": "2", "kind": "headings", "visible": True},
        {"article": 1, "item": "1", "kind": "paras", "visible": False},
        {"article": 2, "item": "2", "kind": "paras", "visible": True},
    ],
}
TAGS = "$FOLLOW(articles_tags,tags_id)"
BLOCKS = "$FOLLOW(sections,item,kind)"
FILES = {number: f"00000000-0000-4000-8000-00000000000{number}" for number in (1, 2)}
PUBLISHED = {"status": {"_eq": "published"}}


@pytest.fixture(scope="module", autouse=True)
def collections(stage: Stage) -> None:
    make_collections(stage.admin, COLLECTIONS, RELATIONS)
    for name, rows in ROWS.items():
        assert stage.admin.post(f"/items/{name}", rows).status == 200


def ids(client: Client, collection: str, filters: object) -> list[int]:
    answer = client.search(f"/items/{collection}", {"filter": filters, "fields": ["id"]})
    return [item["id"] for item in answer.data]


@pytest.mark.quick(5)
@pytest.mark.parametrize(
    ("collection", "filters", "expected"),
    [
        ("tags", {TAGS: {}}, [1, 2]),
        ("tags", {TAGS: {"_some": {}}}, [1, 2]),
        ("tags", {TAGS: {"_none": {}}}, [3]),
        ("tags", {TAGS: {"articles_id": {"_eq": 2}}}, [1, 2]),
        ("tags", {TAGS: {"_none": {"articles_id": {"_eq": 1}}}}, [2, 3]),
        ("tags", {"$FOLLOW( articles_tags , tags_id )": {"articles_id": PUBLISHED}}, [1]),
        ("tags", {TAGS: {"_and": [{"_some": {"articles_id": 1}}, {"articles_id": 2}]}}, [1]),
        ("tags", {"_or": [{TAGS: {"articles_id": 1}}, {"name": "z"}]}, [1, 3]),
        ("headings", {BLOCKS: {"article": PUBLISHED}}, [1]),
        ("paras", {BLOCKS: {"_none": {"article": {"title": {"_eq": "A1"}}}}}, [2, 3]),
        ("paras", {BLOCKS: {}}, [1, 2]),
        ("paras", {"$FOLLOW(articles,lead)": {}}, [3]),
        # At the end of a path, and behind another one.
        ("sections", {"item:headings": {BLOCKS: {"article": {"status": "draft"}}}}, [2]),
        ("articles", {"lead": {"$FOLLOW(articles,lead)": {"id": {"_eq": 1}}}}, [1]),
        ("articles", {"$FOLLOW(sections,article)": {"item:paras": {BLOCKS: {"id": 4}}}}, [2]),
        ("articles", {f"lead.{'$FOLLOW(articles,lead)'}": {"id": {"_eq": 1}}}, [1]),
    ],
)
def test_a_filter_follows_what_leads_to_an_item(
    admin: Client, collection: str, filters: object, expected: list[int]
) -> None:
    assert ids(admin, collection, filters) == expected
    path = f"/items/{collection}?fields=id&filter={quote(json.dumps(filters))}"
    assert [item["id"] for item in admin.get(path).data] == expected


def test_a_query_string_follows_by_brackets(admin: Client) -> None:
    for name in (TAGS, quote(TAGS)):
        path = f"/items/tags?fields=id&filter[{name}][_none][articles_id][_eq]=1"
        assert admin.get(path).data == [{"id": 2}, {"id": 3}]
    deep = f"/items/articles/2?fields=tags.tags_id.name&deep[tags][_filter][tags_id][{TAGS}][id]=1"
    assert admin.get(deep).data == {"tags": [{"tags_id": {"name": "x"}}]}


@pytest.mark.parametrize(
    "name",
    [
        "$FOLLOW(articles_tags)",
        "$FOLLOW(articles_tags,tags_id,id,id)",
        "$FOLLOW(articles_tags,)",
        "$FOLLOW",
        "$FOLLOW()",
        "$FOLLOW(articles_tags,tags_id",
        # A field that leads elsewhere, that is no relation, and that is not there.
        "$FOLLOW(articles_tags,articles_id)",
        "$FOLLOW(articles,title)",
        "$FOLLOW(articles,sections)",
        "$FOLLOW(articles_tags,nothing)",
        "$FOLLOW(nothing,tags_id)",
        "$FOLLOW(sections,item,kind)",
        "$FOLLOW(articles_tags,tags_id,articles_id)",
        f"count({TAGS})",
    ],
)
def test_a_name_that_leads_nowhere_is_refused(admin: Client, name: str) -> None:
    answer = admin.search("/items/tags", {"filter": {name: {"_some": {}}}})
    assert (answer.status, answer.codes) == (400, ["INVALID_QUERY"])
    rule = {"collection": "tags", "action": "read", "permissions": {name: {}}, "fields": ["*"]}
    assert admin.post("/permissions", rule).status == 422


@pytest.mark.parametrize(
    "filters", [{TAGS: 1}, {TAGS: {"_eq": 1}}, {TAGS: {"_null": True}}, {TAGS: [1]}, {TAGS: None}]
)
def test_what_is_followed_has_no_value_of_its_own(admin: Client, filters: object) -> None:
    assert admin.search("/items/tags", {"filter": filters}).status == 400


@pytest.mark.parametrize(
    "query",
    [
        f"fields={TAGS}",
        f"fields=name,{TAGS}.id",
        f"sort={TAGS}.id",
        f"sort=-{TAGS}",
        f"groupBy={TAGS}",
        f"aggregate[count]={TAGS}",
        f"alias[a]={TAGS}&fields=a",
        f"deep[{TAGS}][_limit]=1",
        f"fields=count({TAGS})",
    ],
)
def test_only_filters_and_rules_follow(stage: Stage, admin: Client, query: str) -> None:
    reader = member(stage, may("tags"), may("articles_tags"))
    for client in (admin, reader):
        answer = client.get(f"/items/tags?{query}")
        assert (answer.status, set(answer.codes)) == (400, {"INVALID_QUERY"}), answer


def test_only_rows_that_the_caller_sees_count_also_for_none(stage: Stage) -> None:
    seen = {"articles_id": {"_eq": 1}}
    reader = member(stage, may("tags"), may("articles_tags", permissions=seen))
    assert ids(reader, "tags", {TAGS: {}}) == [1]
    assert ids(reader, "tags", {TAGS: {"_none": {}}}) == [2, 3]
    # In rows in which the caller may not read the field it leads nowhere.
    masked = member(
        stage,
        may("headings"),
        may("sections", "id"),
        may("sections", "item", "kind", permissions={"article": PUBLISHED}),
    )
    assert ids(masked, "headings", {BLOCKS: {}}) == [1]
    assert ids(masked, "headings", {BLOCKS: {"_none": {}}}) == [2]


def test_every_name_is_checked_as_if_it_were_read(stage: Stage) -> None:
    for permission in (
        may("sections", "id"),
        may("sections", "id", "item"),
        may("sections", "id", "kind"),
        may("articles"),
    ):
        reader = member(stage, may("headings"), may("tags"), permission)
        for name in (BLOCKS, "$FOLLOW(sections,nothing,kind)", "$FOLLOW(nothing,item,kind)"):
            answer = reader.search("/items/headings", {"filter": {name: {}}})
            assert (answer.status, answer.codes) == (403, ["FORBIDDEN"]), (permission, name)
    reader = member(stage, may("headings"), may("sections", "id", "item", "kind"))
    assert ids(reader, "headings", {BLOCKS: {"id": {"_eq": 1}}}) == [1]
    for inner in ({"article": {"_eq": 1}}, {"visible": {"_eq": True}}):
        assert reader.search("/items/headings", {"filter": {BLOCKS: inner}}).status == 403


def test_a_rule_sees_all_that_uses_a_row(stage: Stage) -> None:
    rule = {BLOCKS: {"article": PUBLISHED}}
    reader = member(
        stage,
        *(may(name, permissions=rule) for name in ("headings", "paras")),
        may("headings", "text", action="update", permissions=rule),
        may("headings", action="delete", permissions=rule),
    )
    assert ids(reader, "headings", {}) == [1]
    assert ids(reader, "paras", {}) == [1]
    assert reader.get("/items/headings/2").status == 404
    assert reader.patch("/items/headings/1", {"text": "H1!"}).data["text"] == "H1!"
    for answer in (
        reader.patch("/items/headings/2", {"text": "no"}),
        reader.delete("/items/headings/2"),
    ):
        assert answer.status in (403, 404), answer
    # Nobody uses a new row yet.
    writer = member(
        stage,
        may("headings"),
        may("headings", action="create", permissions={BLOCKS: {"_none": {}}}),
    )
    assert writer.post("/items/headings", {"text": "new"}).status == 200
    refused = member(stage, may("headings"), may("headings", action="create", permissions=rule))
    assert refused.post("/items/headings", {"text": "new"}).status == 403


def test_a_rule_opens_the_files_of_what_is_published(stage: Stage) -> None:
    for article in (1, 2):
        file = {"id": FILES[article], "storage": "local", "filename_download": "a"}
        stage.insert("system_files", file)
        image = {"image": FILES[article]}
        assert stage.admin.patch(f"/items/articles/{article}", image).status == 200
    rule = {"$FOLLOW(articles,image)": PUBLISHED}
    reader = member(stage, may("system_files", "id", permissions=rule))
    assert reader.get("/files").data == [{"id": FILES[1]}]


@pytest.mark.release
def test_a_rule_follows_renamed_fields_and_shows_nothing_without_them(stage: Stage) -> None:
    admin = stage.admin
    rule = {BLOCKS: {"visible": {"_eq": True}}}
    reader = member(stage, may("paras", permissions=rule))
    assert ids(reader, "paras", {}) == [2]
    renamed = {"visible": "shown", "item": "block", "kind": "block_kind"}
    for before, after in renamed.items():
        assert admin.patch(f"/fields/sections/{before}", {"field": after}).status == 200
        assert ids(reader, "paras", {}) == [2], after
    stored = json.dumps([row["permissions"] for row in admin.get("/permissions?limit=-1").data])
    assert "$FOLLOW(sections,block,block_kind)" in stored
    for before, after in renamed.items():
        assert admin.patch(f"/fields/sections/{after}", {"field": before}).status == 200
    gone = member(stage, may("paras", permissions={"$FOLLOW(articles,lead)": {}}))
    assert ids(gone, "paras", {}) == [3]
    assert admin.delete("/fields/articles/lead").status == 204
    assert gone.search("/items/paras", {}).status == 403


def test_a_rule_of_values_follows_nothing(admin: Client) -> None:
    body = {"collection": "tags", "action": "create", "fields": ["*"], "validation": {TAGS: {}}}
    assert admin.post("/permissions", body).status == 422
    meta: dict[str, Any] = {"meta": {"validation": {TAGS: {}}}}
    assert admin.patch("/fields/tags/name", meta).status == 400


def test_the_public_role_sees_what_published_items_use(stage: Stage) -> None:
    rule = {BLOCKS: {"article": PUBLISHED}}
    permission = {"collection": "headings", "action": "read", "fields": ["*"], "permissions": rule}
    assert stage.admin.post("/permissions", permission).status == 200
    assert [row["id"] for row in stage.anonymous.get("/items/headings").data] == [1]
    assert stage.admin.patch("/items/articles/1", {"status": "draft"}).status == 200
    assert stage.anonymous.get("/items/headings").data == []
