"""/schema/diff and /schema/apply: from one structure to another, in one transaction."""

from __future__ import annotations

import json
from collections.abc import Iterator
from copy import deepcopy
from typing import Any

import pytest
import yaml

from tests.api.snapshots import snapshot
from tests.client import Answer, Client
from tests.things import Json, Stage, field, make_collections

BOUNDARY = "boundary"


@pytest.fixture(autouse=True)
def articles(stage: Stage) -> Iterator[None]:
    """Articles with authors, in a database where no other test has left anything."""
    fields = {
        "authors": [field("name", "string", max_length=80)],
        "articles": [field("title", "string"), field("author", "integer")],
    }
    make_collections(
        stage.admin,
        fields,
        [("articles", "author", "authors", {"one_field": "articles"})],
    )
    yield
    for record in stage.admin.get("/collections").data:
        if not record["collection"].startswith("system_"):
            stage.admin.delete(f"/collections/{record['collection']}")


def without(document: Json, collection: str, name: str | None = None) -> Json:
    """Return a snapshot without a collection, or without one of its fields."""
    document = deepcopy(document)
    for section in ("collections", "fields", "relations"):
        document[section] = [
            record
            for record in document[section]
            if collection not in (record["collection"], record.get("related_collection"))
            or name not in (None, record.get("field"))
        ]
    return document


def record_of(document: Json, collection: str, name: str) -> Json:
    record: Json
    (record,) = (
        record
        for record in document["fields"]
        if (record["collection"], record["field"]) == (collection, name)
    )
    return record


def apply(client: Client, document: Json, *, destroys: bool = False) -> Answer:
    diff = client.post("/schema/diff", document).data
    return client.post("/schema/apply", {**diff, "allow_destructive": destroys})


def test_the_diff_against_itself_is_empty(admin: Client) -> None:
    answer = admin.post("/schema/diff", snapshot(admin))
    assert (answer.status, answer.text) == (204, "")


def test_a_diff_lists_what_is_new_deleted_and_changed(admin: Client) -> None:
    document = without(snapshot(admin), "authors", "name")
    record_of(document, "articles", "title")["meta"]["note"] = "The headline"
    record = {"collection": "articles", "field": "body", "type": "text"}
    document["fields"].append(record)
    diff = admin.post("/schema/diff", document).data
    assert len(diff["hash"]) == 64
    assert diff["diff"]["collections"] == diff["diff"]["relations"] == []
    body, title, name = diff["diff"]["fields"]
    assert body == {
        "collection": "articles",
        "field": "body",
        "diff": [{"kind": "N", "rhs": record}],
    }
    assert title["diff"] == [
        {"kind": "E", "path": ["meta", "note"], "lhs": None, "rhs": "The headline"}
    ]
    assert [entry["kind"] for entry in name["diff"]] == ["D"]


def test_a_diff_is_applied_whole_and_again_without_effect(admin: Client) -> None:
    target = snapshot(admin)
    for name in ("articles", "authors"):
        admin.delete(f"/collections/{name}")
    diff = admin.post("/schema/diff", target).data
    for _ in range(2):
        assert admin.post("/schema/apply", diff).status == 204
        assert snapshot(admin) == target


def test_a_diff_for_another_structure_is_refused(admin: Client) -> None:
    document = snapshot(admin)
    record_of(document, "articles", "title")["meta"]["note"] = "Other"
    diff = admin.post("/schema/diff", document).data
    assert admin.post("/collections", {"collection": "shelf", "meta": {}}).status == 200
    answer = admin.post("/schema/apply", diff)
    assert (answer.status, answer.codes) == (400, ["INVALID_PAYLOAD"])
    assert answer.errors[0]["field"] == "hash"
    assert record_of(snapshot(admin), "articles", "title")["meta"]["note"] is None


@pytest.mark.release
@pytest.mark.parametrize("name", [None, "name"])
def test_data_is_deleted_only_where_that_is_allowed(admin: Client, name: str | None) -> None:
    admin.post("/items/authors", {"name": "Ann"})
    before = snapshot(admin)
    document = without(before, "authors", name)
    if name is None:
        document = without(document, "articles", "author")
    answer = apply(admin, document)
    assert answer.status == 422, answer
    assert set(answer.codes) == {"UNPROCESSABLE_CONTENT"}
    assert "authors" in [error["collection"] for error in answer.errors]
    assert snapshot(admin) == before
    assert admin.get("/items/authors").data[0]["name"] == "Ann"
    assert apply(admin, document, destroys=True).status == 204
    assert admin.post("/schema/diff", document).status == 204


@pytest.mark.release
def test_a_new_type_that_values_do_not_fit_deletes_them_only_where_allowed(
    admin: Client,
) -> None:
    admin.post("/items/authors", {"name": "Ann"})
    document = snapshot(admin)
    record = record_of(document, "authors", "name")
    record["type"] = "integer"
    record["schema"]["max_length"] = None
    answer = apply(admin, document)
    assert (answer.status, answer.codes) == (422, ["UNPROCESSABLE_CONTENT"])
    assert answer.errors[0]["collection"] == "authors"
    assert admin.get("/items/authors").data[0]["name"] == "Ann"
    assert apply(admin, document, destroys=True).status == 204
    assert admin.get("/items/authors").data[0]["name"] is None


@pytest.mark.release
def test_a_new_type_keeps_the_values_that_fit(admin: Client) -> None:
    admin.post("/items/authors", {"name": "17"})
    document = snapshot(admin)
    record = record_of(document, "authors", "name")
    record["type"] = "integer"
    record["schema"]["max_length"] = None
    assert apply(admin, document).status == 204
    assert admin.get("/items/authors").data[0]["name"] == 17


@pytest.mark.release
def test_the_key_of_a_relation_changes_on_both_sides(admin: Client) -> None:
    author = admin.post("/items/authors", {"name": "Ann"}).data["id"]
    admin.post("/items/articles", {"title": "One", "author": author})
    document = snapshot(admin)
    record_of(document, "authors", "id")["type"] = "bigInteger"
    record_of(document, "articles", "author")["type"] = "bigInteger"
    assert apply(admin, document).status == 204
    assert admin.get("/items/articles?fields=author.name").data == [{"author": {"name": "Ann"}}]
    assert admin.post("/items/articles", {"author": 99}).status == 400


def renamed(document: Json) -> Json:
    """Return a snapshot in which articles have writers instead of authors."""
    document = deepcopy(document)
    record = record_of(document, "articles", "author")
    record["field"] = "writer"
    record["renamed_from"] = "author"
    record["meta"]["field"] = "writer"
    (relation,) = document["relations"]
    relation["field"] = "writer"
    return document


def test_a_rename_keeps_the_values(admin: Client) -> None:
    author = admin.post("/items/authors", {"name": "Ann"}).data["id"]
    admin.post("/items/articles", {"title": "One", "author": author})
    document = renamed(snapshot(admin))
    diff = admin.post("/schema/diff", document).data
    (entry,) = diff["diff"]["fields"]
    assert entry == {
        "collection": "articles",
        "field": "writer",
        "renamed_from": "author",
        "diff": [],
    }
    assert diff["diff"]["relations"] == []
    for _ in range(2):
        assert admin.post("/schema/apply", diff).status == 204
    assert admin.get("/items/articles?fields=writer.name").data == [{"writer": {"name": "Ann"}}]
    # The document may stay in version control as it is.
    assert admin.post("/schema/diff", document).status == 204


@pytest.mark.release
def test_without_the_former_name_a_rename_would_delete(admin: Client) -> None:
    document = renamed(snapshot(admin))
    del record_of(document, "articles", "writer")["renamed_from"]
    assert apply(admin, document).status == 422


@pytest.mark.release
def test_names_move_on_in_a_row(admin: Client) -> None:
    admin.post("/items/articles", {"title": "One"})
    document = snapshot(admin)
    record = record_of(document, "articles", "title")
    record |= {"field": "headline", "renamed_from": "title"}
    document["fields"].append({"collection": "articles", "field": "title", "type": "text"})
    assert apply(admin, document).status == 204
    (item,) = admin.get("/items/articles?fields=headline,title").data
    assert item == {"headline": "One", "title": None}
    assert admin.post("/schema/diff", document).status == 204


def test_a_change_that_cannot_be_made_undoes_all_others(admin: Client) -> None:
    admin.post("/items/authors", [{"name": "Ann"}, {"name": "Ann"}])
    before = snapshot(admin)
    document = deepcopy(before)
    document["collections"].append({"collection": "shelves", "schema": {}, "meta": {}})
    record_of(document, "authors", "name")["schema"]["is_unique"] = True
    answer = apply(admin, document)
    assert (answer.status, answer.codes) == (400, ["RECORD_NOT_UNIQUE"])
    assert snapshot(admin) == before


def test_what_a_document_leaves_out_stays(admin: Client) -> None:
    relation = {"collection": "articles", "field": "author", "meta": None}
    names = [(record["collection"], record["field"]) for record in snapshot(admin)["fields"]]
    document = {
        "version": 1,
        "collections": [{"collection": name} for name in ("articles", "authors")],
        "fields": [{"collection": owner, "field": name} for owner, name in names],
        "relations": [{**relation, "related_collection": "authors"}],
    }
    assert admin.post("/schema/diff", document).status == 204


@pytest.mark.release
def test_the_history_has_the_changes(admin: Client) -> None:
    document = renamed(snapshot(admin))
    document["fields"].append({"collection": "authors", "field": "born", "type": "date"})
    assert apply(admin, document).status == 204
    revisions = admin.get("/revisions?sort=-id&limit=3&fields=collection,item").data
    assert {(entry["collection"], entry["item"]) for entry in revisions} == {
        ("system_fields", "authors.born"),
        ("system_fields", "articles.writer"),
        ("system_relations", "articles.writer"),
    }


@pytest.mark.release
def test_presets_of_deleted_collections_are_in_the_history(admin: Client) -> None:
    admin.post("/presets", {"collection": "articles", "bookmark": "Mine"})
    document = without(snapshot(admin), "articles")
    document = without(document, "authors", "articles")
    assert apply(admin, document, destroys=True).status == 204
    actions = admin.get("/activity?sort=-id&limit=20&fields=action,collection").data
    assert {"action": "delete", "collection": "system_presets"} in actions


def form(*parts: tuple[str, bytes]) -> bytes:
    lines = b""
    for name, content in parts:
        disposition = f'Content-Disposition: form-data; name="file"; filename="{name}"'
        lines += b"--" + BOUNDARY.encode() + b"\r\n" + disposition.encode() + b"\r\n\r\n"
        lines += content + b"\r\n"
    return lines + b"--" + BOUNDARY.encode() + b"--\r\n"


@pytest.mark.release
@pytest.mark.parametrize("export", ["yaml", "json"])
def test_a_diff_takes_files(admin: Client, export: str) -> None:
    content = admin.get("/schema/snapshot", export=export).content
    media_types = {
        f"multipart/form-data; boundary={BOUNDARY}": form((f"schema.{export}", content)),
        f"application/{export}": content,
    }
    for media_type, raw in media_types.items():
        answer = admin.send("POST", "/schema/diff", raw=raw, **{"Content-Type": media_type})
        assert answer.status == 204, answer.text
    other = yaml.safe_load(content)
    other["collections"][0]["meta"]["note"] = "Other"
    raw = yaml.safe_dump(other).encode()
    answer = admin.send("POST", "/schema/diff", raw=raw, **{"Content-Type": "text/yaml"})
    assert len(answer.data["diff"]["collections"]) == 1


@pytest.mark.quick(1)
@pytest.mark.parametrize("name", ["diff.json", "diff.yaml"])
def test_an_apply_takes_files(admin: Client, name: str) -> None:
    document = snapshot(admin)
    document["fields"].append({"collection": "authors", "field": "born", "type": "date"})
    diff = admin.post("/schema/diff", document).data
    write = yaml.safe_dump if name.endswith("yaml") else json.dumps
    media_type = f"multipart/form-data; boundary={BOUNDARY}"
    raw = form((name, write(diff).encode()))
    answer = admin.send("POST", "/schema/apply", raw=raw, **{"Content-Type": media_type})
    assert (answer.status, answer.text) == (204, ""), answer
    assert admin.post("/schema/diff", document).status == 204
    raw = form((name, b"[]"))
    answer = admin.send("POST", "/schema/apply", raw=raw, **{"Content-Type": media_type})
    assert (answer.status, answer.codes) == (400, ["INVALID_PAYLOAD"])


@pytest.mark.release
@pytest.mark.parametrize(
    "words",
    [
        {"type": "dateTime"},
        {"type": "integer", "schema": {"numeric_precision": 32, "numeric_scale": 0}},
        {"type": "string", "schema": {"is_unique": True, "is_indexed": False}},
        {"type": "uuid", "schema": {"max_length": 36}},
        {"type": "boolean", "meta": {"special": ["boolean"]}},
    ],
)
def test_other_words_for_the_same_are_no_difference(admin: Client, words: Json) -> None:
    document = snapshot(admin)
    document["fields"].append({"collection": "authors", "field": "value", **words})
    assert apply(admin, document).status == 204
    again = admin.post("/schema/diff", document)
    assert again.status == 204, again.data["diff"]


def test_only_administrators_compare_and_apply(stage: Stage) -> None:
    for path in ("/schema/diff", "/schema/apply"):
        answer = stage.anonymous.post(path, {"anything": [1]})
        assert (answer.status, answer.codes) == (403, ["FORBIDDEN"]), answer


@pytest.mark.release
def test_allow_destructive_is_read_from_the_query_too(admin: Client) -> None:
    document = without(snapshot(admin), "authors", "name")
    diff = admin.post("/schema/diff", document).data
    assert admin.post("/schema/apply?allow_destructive=maybe", diff).status == 400
    assert admin.post("/schema/apply?allow_destructive=false", diff).status == 422
    assert admin.post("/schema/apply?allow_destructive=true", diff).status == 204


@pytest.mark.quick(1)
@pytest.mark.parametrize(
    ("definition", "schema", "value", "cut"),
    [
        (("string", {"max_length": 50}), {"max_length": 3}, "a long one", "a l"),
        (
            ("decimal", {"numeric_precision": 10, "numeric_scale": 3}),
            {"numeric_precision": 10, "numeric_scale": 1},
            1.256,
            1.3,
        ),
        (
            ("decimal", {"numeric_precision": 10, "numeric_scale": 0}),
            {"numeric_precision": 3, "numeric_scale": 0},
            123456,
            None,
        ),
    ],
    ids=["length", "scale", "precision"],
)
def test_a_size_in_which_values_would_be_lost_needs_allow_destructive(
    admin: Client, definition: tuple[str, Json], schema: Json, value: object, cut: object
) -> None:
    type_name, settings = definition
    admin.post("/fields/authors", field("value", type_name, **settings))
    (fits, loses) = admin.post("/items/authors", [{"name": "a"}, {"value": value}]).data
    document = snapshot(admin)
    record_of(document, "authors", "value")["schema"].update(schema)
    refused = apply(admin, document)
    assert (refused.status, refused.codes) == (422, ["UNPROCESSABLE_CONTENT"]), refused
    assert refused.errors[0]["collection"] == "authors"
    assert admin.get(f"/items/authors/{loses['id']}").data["value"] == value
    assert apply(admin, document, destroys=True).status == 204
    assert admin.get(f"/items/authors/{loses['id']}").data["value"] == cut
    assert admin.get(f"/items/authors/{fits['id']}").data["name"] == "a"
    assert admin.post("/schema/diff", document).status == 204


@pytest.mark.release
def test_a_size_that_all_values_have_needs_no_allow_destructive(admin: Client) -> None:
    admin.post("/items/authors", {"name": "Ada"})
    document = snapshot(admin)
    record_of(document, "authors", "name")["schema"]["max_length"] = 3
    assert apply(admin, document).status == 204


@pytest.mark.release
def test_a_null_where_none_may_be_is_refused_whatever_is_allowed(admin: Client) -> None:
    admin.post("/items/authors", {"name": None})
    document = snapshot(admin)
    record_of(document, "authors", "name")["schema"]["is_nullable"] = False
    answer = apply(admin, document, destroys=True)
    assert (answer.status, answer.codes) == (400, ["CONTAINS_NULL_VALUES"]), answer


@pytest.mark.release
def test_a_key_of_text_is_cut_together_with_those_that_point_to_it(admin: Client) -> None:
    key = field("code", "string", max_length=9, is_primary_key=True, is_nullable=False)
    admin.post("/collections", {"collection": "lands", "schema": {}, "fields": [key]})
    admin.post("/fields/authors", field("land", "string", max_length=9))
    relation = {"collection": "authors", "field": "land", "related_collection": "lands"}
    assert admin.post("/relations", relation).status == 200
    author = admin.post("/items/authors", {"land": {"code": "iceland"}}).data
    document = snapshot(admin)
    record_of(document, "lands", "code")["schema"]["max_length"] = 3
    record_of(document, "authors", "land")["schema"]["max_length"] = 3
    assert apply(admin, document).codes == ["UNPROCESSABLE_CONTENT"]
    assert apply(admin, document, destroys=True).status == 204
    assert admin.get(f"/items/authors/{author['id']}").data["land"] == "ice"
    assert admin.get("/items/lands").data == [{"code": "ice"}]
    assert admin.post("/schema/diff", document).status == 204


@pytest.mark.release
def test_cut_values_that_are_no_longer_unique_are_refused(admin: Client) -> None:
    admin.patch("/fields/authors/name", {"schema": {"is_unique": True}})
    admin.post("/items/authors", [{"name": "Adam"}, {"name": "Adamson"}])
    document = snapshot(admin)
    record_of(document, "authors", "name")["schema"]["max_length"] = 4
    answer = apply(admin, document, destroys=True)
    assert (answer.status, answer.codes) == (400, ["RECORD_NOT_UNIQUE"]), answer
    assert [row["name"] for row in admin.get("/items/authors").data] == ["Adam", "Adamson"]


@pytest.mark.release
@pytest.mark.parametrize("size", [3])
def test_groups_may_change_places(admin: Client, size: int) -> None:
    for number in range(size):
        meta: Any = {"group": f"box_{number - 1}"} if number else {}
        admin.post("/collections", {"collection": f"box_{number}", "meta": meta})
    document = snapshot(admin)
    boxes = [record for record in document["collections"] if record["schema"] is None]
    for record, group in zip(boxes, ["box_1", "box_2", None], strict=True):
        record["meta"]["group"] = group
    assert apply(admin, document).status == 204
    assert snapshot(admin) == document
    boxes[2]["meta"]["group"] = "box_0"
    assert apply(admin, document).status == 400


@pytest.mark.release
def test_the_rule_of_a_field_is_compared_and_applied(admin: Client) -> None:
    before = snapshot(admin)
    rule = {"_and": [{"title": {"_neq": "x"}}]}
    path = "/fields/articles/title"
    assert admin.patch(path, {"meta": {"validation": rule}}).status == 200
    after = snapshot(admin)
    apply(admin, before)
    assert admin.get(path).data["meta"]["validation"] is None
    apply(admin, after)
    assert admin.get(path).data["meta"]["validation"] == rule
