"""/schema/snapshot: the structure as a document that is the same on every installation."""

from __future__ import annotations

import json
from typing import Any

import pytest
import yaml

from cms.schema_sync.document_texts import write_yaml
from tests.client import Client
from tests.things import Json, Stage, field, make_collections

COLLECTIONS: dict[str, list[Json]] = {
    "authors": [
        field("name", "string", is_nullable=False, max_length=80, is_unique=True),
        field("since", "timestamp", default_value="now()"),
    ],
    "articles": [
        field("title", "string", is_indexed=True, comment="yes: \"no\" # 'it'\n\u2028"),
        field("price", "decimal", default_value="0.10", numeric_precision=30, numeric_scale=20),
        field("author", "integer"),
        field("sort", "integer"),
    ],
    "tags": [field("name", "string")],
}
RELATIONS: list[tuple[str, str, str | None, dict[str, Any]]] = [
    ("articles", "author", "authors", {"one_field": "articles", "sort_field": "sort"}),
    ("articles", "tags", "tags", {"junction_collection": "articles_tags", "one_field": "articles"}),
]


def fill(admin: Client, *, backwards: bool = False) -> None:
    names = sorted(COLLECTIONS, reverse=backwards)
    fields = {name: COLLECTIONS[name][::-1] if backwards else COLLECTIONS[name] for name in names}
    make_collections(admin, fields, RELATIONS)
    assert admin.post("/collections", {"collection": "shop", "meta": {"icon": "x"}}).status == 200
    for name in names:
        answer = admin.patch(f"/collections/{name}", {"meta": {"group": "shop"}})
        assert answer.status == 200, answer


@pytest.fixture(scope="module", autouse=True)
def articles_and_authors(stage: Stage) -> None:
    fill(stage.admin)
    stage.execute("CREATE VIEW names AS SELECT id, name FROM authors")


def test_a_snapshot_holds_the_structure_without_ids_in_the_order_of_names(admin: Client) -> None:
    document = admin.get("/schema/snapshot").data
    assert list(document) == ["version", "directus", "vendor", "collections", "fields", "relations"]
    assert [record["collection"] for record in document["collections"]] == [
        "articles",
        "articles_tags",
        "authors",
        "shop",
        "tags",
    ]
    names = [(record["collection"], record["field"]) for record in document["fields"]]
    assert names == sorted(names)
    sides = [(record["collection"], record["field"]) for record in document["relations"]]
    assert sides == [
        ("articles", "author"),
        ("articles_tags", "articles_id"),
        ("articles_tags", "tags_id"),
    ]
    for record in [*document["fields"], *document["relations"]]:
        assert "id" not in (record["meta"] or {})


def test_records_are_those_of_the_other_routes(admin: Client) -> None:
    document = admin.get("/schema/snapshot").data
    records = {(record["collection"], record["field"]): record for record in document["fields"]}
    title = admin.get("/fields/articles/title").data
    assert title["meta"] is None or title["meta"].pop("id")
    assert records["articles", "title"] == title
    assert title["schema"]["is_indexed"]
    assert document["collections"][0] == admin.get("/collections/articles").data


@pytest.mark.release
def test_the_order_does_not_depend_on_creation(admin: Client, api: Client) -> None:
    fill(api, backwards=True)
    assert api.get("/schema/snapshot").content == admin.get("/schema/snapshot").content


@pytest.mark.parametrize(
    ("name", "media_type", "read"),
    [("yaml", "application/yaml", yaml.safe_load), ("json", "application/json", json.loads)],
)
def test_an_export_is_the_bare_document(
    admin: Client, name: str, media_type: str, read: Any
) -> None:
    answer = admin.get("/schema/snapshot", export=name)
    assert answer.status == 200
    assert answer.headers["content-type"].startswith(media_type)
    assert read(answer.content) == admin.get("/schema/snapshot").data
    assert len(answer.text.splitlines()) > 100
    assert answer.text.endswith("\n")


def test_yaml_has_no_aliases_and_keeps_texts_that_look_like_other_values() -> None:
    choices = ["yes", "null", "1e3", "~", "2020-01-01", "a\n#b", "\u2028\ufeff", "'", "<<"]
    document = {"one": choices, "two": choices}
    text = write_yaml(document)
    assert yaml.safe_load(text) == document
    assert b"&id" not in text


@pytest.mark.parametrize("parameters", [{"export": "csv"}, {"export": ""}, {"include": "users"}])
def test_unknown_values_are_refused(admin: Client, parameters: dict[str, str]) -> None:
    answer = admin.get("/schema/snapshot?" + "&".join("=".join(p) for p in parameters.items()))
    assert answer.status == 400
    assert answer.codes == ["INVALID_QUERY"]


def test_only_administrators_read_it(stage: Stage) -> None:
    assert stage.anonymous.get("/schema/snapshot").status == 403


@pytest.mark.parametrize("name", ["yaml", "json"])
def test_deep_options_are_exported(admin: Client, name: str) -> None:
    options: Json = {}
    for _ in range(240):
        options = {"deeper": options}
    body = {"meta": {"options": options}}
    assert admin.patch("/fields/tags/name", body).status == 200
    try:
        answer = admin.get("/schema/snapshot", export=name)
        assert answer.status == 200, answer
    finally:
        assert admin.patch("/fields/tags/name", {"meta": {"options": None}}).status == 200


@pytest.mark.parametrize("export", ["yaml", "json"])
def test_a_file_is_an_attachment(admin: Client, export: str) -> None:
    disposition = admin.get("/schema/snapshot", export=export).headers["content-disposition"]
    assert disposition == f'attachment; filename="schema.{export}"'
