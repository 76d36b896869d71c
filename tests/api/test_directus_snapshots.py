"""Snapshots that Directus has written, through /schema/diff and /schema/apply."""

from __future__ import annotations

from typing import Any

import pytest

from tests.client import Client
from tests.directus_snapshots import directus_snapshot

Json = dict[str, Any]

RELEASES = [
    ("9.5.0", "postgres"),
    ("9.5.2", "sqlite3"),
    ("9.12.1", "mysql"),
    ("9.12.1", "postgres"),
    ("9.26.0", "sqlite3"),
    ("10.0.0", "postgres"),
    ("10.0.0", "mysql"),
    ("10.6.1", "sqlite3"),
    ("10.13.1", "postgres"),
]


@pytest.mark.quick(1)
@pytest.mark.parametrize(("version", "vendor"), RELEASES)
def test_a_snapshot_is_applied_and_the_next_diff_is_empty(
    api: Client, version: str, vendor: str
) -> None:
    document = directus_snapshot(version, vendor)
    diff = api.post("/schema/diff", document)
    applied = api.post("/schema/apply", diff.data)
    assert (applied.status, applied.text) == (204, ""), applied
    again = api.post("/schema/diff", document)
    assert (again.status, again.text) == (204, "")
    types = {record["field"]: record["type"] for record in api.get("/fields/articles").data}
    assert types["author"] == types["cover"] == types["editor"] == "uuid"
    article = {
        "title": "a",
        "tags": {"create": [{"articles_id": "+", "tags_id": {"text": "t"}}]},
        "blocks": [{"collection": "headings", "item": {"text": "h"}}],
        "translations": [{"languages_code": {"code": "de-DE"}}],
        "author": {},
    }
    assert api.post("/items/articles", article).status == 200
    fields = "status,shown,price,tags.tags_id.text,blocks.item:headings.text"
    assert api.get("/items/articles/1", fields=fields).data == {
        "status": "draft",
        "shown": True,
        "price": 1.5,
        "tags": [{"tags_id": {"text": "t"}}],
        "blocks": [{"item": {"text": "h"}}],
    }


def test_what_has_no_counterpart_is_listed_with_the_reason(api: Client) -> None:
    document = directus_snapshot("10.13.1", "postgres")
    paths = {entry["field"] for entry in api.post("/schema/diff", document).data["ignored"]}
    assert paths == {
        "fields[articles.admirers]",
        "fields[directus_users.company]",
        "fields[directus_users.edited]",
        "fields[directus_users.favourite]",
        "relations[articles.editor].meta.one_field",
        "relations[directus_users.favourite]",
    }


UNKNOWN: list[tuple[str, str, Json, str]] = [
    ("fields", "title", {"type": "unknown"}, ""),
    ("fields", "title", {"meta": {"stars": 5}}, ".meta.stars"),
    ("fields", "title", {"meta": {"special": ["shiny"]}}, ".meta.special"),
    ("fields", "title", {"meta": {"special": ["date-created"]}}, ".meta.special"),
    ("fields", "title", {"meta": {"width": "narrow"}}, ".meta.width"),
    ("fields", "title", {"meta": {"validation": {"a": {"_is": 1}}}}, ".meta.validation"),
    ("fields", "day", {"schema": {"default_value": "tomorrow()"}}, ".schema.default_value"),
    ("fields", "title", {"schema": {"is_partitioned": True}}, ".schema.is_partitioned"),
    ("fields", "title", {"collection": "gone"}, ""),
    ("collections", "articles", {"meta": {"color": "blue"}}, ".meta.color"),
    ("collections", "articles", {"meta": {"sort_field": "gone"}}, ".meta.sort_field"),
    ("collections", "articles", {"meta": {"archive_field": "tags"}}, ".meta.archive_field"),
    ("collections", "articles", {"meta": {"group": "gone"}}, ".meta.group"),
    ("relations", "author", {"related_collection": "gone"}, ""),
    ("relations", "author", {"related_collection": "directus_webhooks"}, ""),
    ("relations", "item", {"meta": {"one_allowed_collections": ["tags", "gone"]}}, ".meta.one_"),
]


@pytest.mark.quick(1)
@pytest.mark.parametrize(("section", "name", "change", "path"), UNKNOWN)
def test_an_unknown_part_of_a_snapshot_is_left_out_and_the_rest_applied(
    api: Client, section: str, name: str, change: Json, path: str
) -> None:
    document = directus_snapshot("10.6.1", "postgres")
    record = next(
        record
        for record in document[section]
        if record.get("field", record["collection"]) == name
        and record["collection"] in ("articles", "articles_blocks")
    )
    for key, value in change.items():
        record[key] = record[key] | value if isinstance(value, dict) else value
    names = [record["collection"], *([name] if section != "collections" else [])]
    diff = api.post("/schema/diff", document).data
    ignored = [entry["field"] for entry in diff["ignored"]]
    assert any(entry.startswith(f"{section}[{'.'.join(names)}]{path}") for entry in ignored)
    assert api.post("/schema/apply", diff).status == 204
    assert api.post("/schema/diff", document).status == 204


def test_members_that_a_later_release_writes_are_left_out(api: Client) -> None:
    document = directus_snapshot("11.1.0", "postgres")
    document["systemFields"] = [{"collection": "directus_users", "field": "email"}]
    diff = api.post("/schema/diff", document).data
    assert "systemFields" in {entry["field"] for entry in diff["ignored"]}


@pytest.mark.release
def test_a_required_column_keeps_the_items_that_it_points_to(api: Client) -> None:
    document = directus_snapshot("10.13.1", "postgres")
    (author,) = (field for field in document["fields"] if field["field"] == "author")
    author["schema"]["is_nullable"] = False
    diff = api.post("/schema/diff", document).data
    assert "relations[articles.author].schema.on_delete" in str(diff["ignored"])
    assert api.post("/schema/apply", diff).status == 204
    assert api.post("/schema/diff", document).status == 204
    relation = api.get("/relations/articles/author").data
    assert relation["schema"]["on_delete"] == "NO ACTION"


@pytest.mark.quick(2)
@pytest.mark.parametrize(
    ("section", "record"),
    [
        ("collections", {"collection": "two-words", "schema": {}}),
        ("fields", {"collection": "site", "field": "two-words", "type": "string"}),
        ("fields", {"collection": "site", "field": "place", "type": "geometry"}),
        (
            "relations",
            {
                "collection": "site",
                "field": "title",
                "related_collection": "languages",
                "meta": {"one_field": "two words"},
            },
        ),
    ],
)
@pytest.mark.parametrize("is_there", [False, True])
def test_what_an_apply_would_refuse_is_refused_by_the_diff(
    api: Client, section: str, record: Json, *, is_there: bool
) -> None:
    document = directus_snapshot("10.13.1", "postgres")
    if is_there:
        assert api.post("/schema/apply", api.post("/schema/diff", document).data).status == 204
    document[section].append(record)
    answer = api.post("/schema/diff", document)
    assert (answer.status, answer.codes) == (400, ["INVALID_PAYLOAD"])
    assert str(record.get("field", record["collection"])) in str(answer.errors[0]) or (
        answer.errors[0]["field"].startswith("collections[site]")
    )


def test_tables_of_directus_in_the_database_are_collections_like_others(api: Client) -> None:
    api.post("/collections", {"collection": "directus_users", "schema": {}})
    document = api.get("/schema/snapshot").data
    assert api.post("/schema/diff", document).status == 204


def test_a_snapshot_is_applied_in_one_call(api: Client) -> None:
    document = directus_snapshot("10.13.1", "mysql")
    for _ in range(2):
        assert api.post("/schema/apply", document).status == 204
        assert api.post("/schema/diff", document).status == 204
    document["fields"] = [field for field in document["fields"] if field["field"] != "rating"]
    assert api.post("/schema/apply", document).codes == ["UNPROCESSABLE_CONTENT"]
    allowed = {**document, "allow_destructive": True}
    assert api.post("/schema/apply", allowed).status == 204
    assert api.get("/fields/articles/rating").status == 404
