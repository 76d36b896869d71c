"""Every key of a body of /collections, /fields or /relations takes effect, or is refused by
name.
"""

from __future__ import annotations

from typing import Any

import pytest

from tests.client import Client
from tests.things import Stage, Table, field, filled_template, table

NEW: dict[str, Any] = {"collection": "new", "schema": {}}


def make_articles(admin: Client) -> None:
    fields = [{"field": "author", "type": "integer"}, {"field": "title", "type": "string"}]
    admin.post("/collections", {"collection": "authors", "schema": {}})
    admin.post("/collections", {"collection": "articles", "schema": {}, "fields": fields})
    relation = {"collection": "articles", "field": "author", "related_collection": "authors"}
    assert admin.post("/relations", {**relation, "meta": {"one_field": "articles"}}).status == 200


template = filled_template(make_articles)


@pytest.fixture(scope="module")
def typed(admin: Client) -> Table:
    """A collection with a field of each type, `a_string` and the like; its type stays."""
    return table(admin, *(field(f"a_{kind}", kind) for kind in dict.fromkeys(MISFITS)))


@pytest.mark.quick(4)
@pytest.mark.parametrize(
    ("method", "path", "body", "location"),
    [
        ("POST", "/collections", {**NEW, "feilds": []}, "feilds"),
        (
            "POST",
            "/collections",
            {**NEW, "fields": [{"field": "a", "type": "text", "x": 1}]},
            "fields[0].x",
        ),
        ("PATCH", "/collections/articles", {"hidden": True}, "hidden"),
        ("PATCH", "/collections/articles", {"fields": []}, "fields"),
        ("PATCH", "/collections/articles", {"collection": "texts"}, "collection"),
        ("PATCH", "/collections", [{"collection": "articles", "hidden": True}], "hidden"),
        (
            "POST",
            "/fields/articles",
            {"field": "a", "type": "text", "is_unique": True},
            "is_unique",
        ),
        (
            "POST",
            "/fields/articles",
            {"field": "a", "type": "text", "collection": "authors"},
            "collection",
        ),
        ("PATCH", "/fields/articles/title", {"is_unique": True}, "is_unique"),
        ("PATCH", "/fields/articles/title", {"collection": "authors"}, "collection"),
        ("PATCH", "/fields/articles", [{"field": "title", "note": "x"}], "note"),
        (
            "POST",
            "/relations",
            {"collection": "articles", "field": "title", "on_delete": "CASCADE"},
            "on_delete",
        ),
        ("PATCH", "/relations/articles/author", {"on_delete": "CASCADE"}, "on_delete"),
        ("PATCH", "/relations/articles/author", {"collection": "authors"}, "collection"),
        ("PATCH", "/relations/articles/author", {"field": "title"}, "field"),
        (
            "PATCH",
            "/relations/articles/author",
            {"related_collection": "articles"},
            "related_collection",
        ),
    ],
)
def test_a_key_that_would_do_nothing_is_refused(
    admin: Client, method: str, path: str, body: object, location: str
) -> None:
    before = [admin.get(path).data for path in ("/collections", "/fields", "/relations")]
    answer = admin.send(method, path, body)
    assert (answer.status, answer.codes) == (400, ["INVALID_PAYLOAD"])
    assert answer.errors[0]["field"] == location
    assert [admin.get(path).data for path in ("/collections", "/fields", "/relations")] == before


def test_the_record_of_a_relation_may_be_sent_back_to_either_side(admin: Client) -> None:
    record = admin.get("/relations/articles/author").data
    for path in ("/relations/articles/author", "/relations/authors/articles"):
        assert admin.patch(path, record).data == record
    side = {"collection": "authors", "field": "articles"}
    assert admin.patch("/relations/authors/articles", side).data == record


@pytest.mark.parametrize("setting", ["is_unique", "is_primary_key"])
def test_the_index_of_a_unique_column_is_not_taken_away_alone(admin: Client, setting: str) -> None:
    things = table(admin, {"field": "code", "type": "string", "schema": {setting: True}})
    path = f"/fields/{things.name}/code"
    record = admin.get(path).data
    answer = admin.patch(path, {"schema": {"is_indexed": False}})
    assert (answer.status, answer.codes, answer.errors[0]["field"]) == (
        400,
        ["INVALID_PAYLOAD"],
        "schema.is_indexed",
    )
    assert admin.patch(path, record).data == record


def test_a_column_may_lose_its_uniqueness_and_its_index_together(admin: Client) -> None:
    things = table(admin, field("code", "string", is_unique=True))
    schema = admin.patch(
        f"/fields/{things.name}/code", {"schema": {"is_unique": False, "is_indexed": False}}
    ).data["schema"]
    assert (schema["is_unique"], schema["is_indexed"]) == (False, False)


MISFITS = {
    "integer": ("uuid", "date-updated", "user-created", "hash", "o2m"),
    "string": ("date-created", "cast-boolean", "geometry"),
    "json": ("role-updated", "cast-csv"),
    "date": ("cast-json",),
}
"""Markers that do not fit, by type."""


def refused_markers(fields: Table, kind: str, special: object) -> list[dict[str, Any]]:
    """Return the errors of a new field with markers, and of markers for one of the same type."""
    new = {"field": "b", "type": kind, "meta": {"special": special}}
    answers = (
        fields.api.post(f"/fields/{fields.name}", new),
        fields.api.patch(f"/fields/{fields.name}/a_{kind}", {"meta": {"special": special}}),
    )
    for answer in answers:
        assert (answer.status, answer.codes) == (400, ["INVALID_PAYLOAD"]), answer
        assert answer.errors[0]["field"] == "meta.special", answer
    return [answer.errors[0] for answer in answers]


@pytest.mark.parametrize(
    ("kind", "special"), [(kind, special) for kind in MISFITS for special in MISFITS[kind]]
)
def test_a_marker_that_does_not_fit_the_type_is_refused(
    typed: Table, kind: str, special: str
) -> None:
    before = typed.api.get(f"/fields/{typed.name}").data
    refused_markers(typed, kind, [special])
    assert typed.api.get(f"/fields/{typed.name}").data == before


@pytest.mark.parametrize(
    ("special", "reason"),
    [
        (["date-create"], '"date-create" is not known; there are uuid, hash'),
        ([""], '"" is not known'),
        (["digest"], '"digest" is not known'),
        (["conceal", "conceal"], "conceal is there twice"),
        ("uuid", "it must be an array of strings"),
        ([None], "it must be an array of strings"),
    ],
)
def test_a_marker_that_there_is_not_is_refused(typed: Table, special: object, reason: str) -> None:
    for error in refused_markers(typed, "string", special):
        assert reason in error["message"], error


def test_a_marker_that_does_nothing_here_is_kept(admin: Client) -> None:
    things = table(admin, field("a", "timestamp", special="cast-timestamp"))
    assert admin.get(f"/fields/{things.name}/a").data["meta"]["special"] == ["cast-timestamp"]


GERMAN = {"language": "de-DE", "translation": "Artikel", "singular": "Artikel", "plural": None}


@pytest.mark.parametrize(
    ("translations", "reason"),
    [
        ("Artikel", "it must be an array"),
        ({"de-DE": "Artikel"}, "it must be an array"),
        (5, "it must be an array"),
        (["Artikel"], "entry 0: it must be an object"),
        ([GERMAN, {"translation": "Artikel"}], "entry 1: language must be a string"),
        ([{**GERMAN, "language": ""}], "entry 0: language must be a string"),
        ([{**GERMAN, "plural": 5}], "entry 0: plural must be a string"),
        ([{**GERMAN, "plurals": "x"}], 'entry 0: it does not take "plurals"'),
    ],
)
def test_translations_of_another_shape_are_refused(
    admin: Client, typed: Table, translations: object, reason: str
) -> None:
    meta = {"meta": {"translations": translations}}
    for answer in (
        admin.post("/collections", {"collection": "never", "schema": {}, **meta}),
        admin.patch(f"/collections/{typed.name}", meta),
        admin.post(f"/fields/{typed.name}", {"field": "b", "type": "string", **meta}),
        admin.patch(f"/fields/{typed.name}/a_string", meta),
    ):
        assert (answer.status, answer.codes) == (400, ["INVALID_PAYLOAD"]), answer
        assert answer.errors[0]["field"] == "meta.translations", answer
        assert reason in answer.errors[0]["message"], answer


def test_translations_are_kept(admin: Client, typed: Table) -> None:
    for translations in ([GERMAN], [], None):
        body = {"meta": {"translations": translations}}
        for path in (f"/collections/{typed.name}", f"/fields/{typed.name}/a_string"):
            assert admin.patch(path, body).data["meta"]["translations"] == translations


@pytest.mark.parametrize(
    "address", [5, "", "articles", "javascript:alert(1)", "https://x/a b", "/a\nb", ["/a"]]
)
def test_a_preview_address_that_is_none_is_refused(
    admin: Client, typed: Table, address: object
) -> None:
    meta = {"meta": {"preview_url": address}}
    for answer in (
        admin.post("/collections", {"collection": "never", "schema": {}, **meta}),
        admin.patch(f"/collections/{typed.name}", meta),
    ):
        assert (answer.status, answer.codes) == (400, ["INVALID_PAYLOAD"]), answer
        assert answer.errors[0]["field"] == "meta.preview_url", answer


@pytest.mark.parametrize(
    "address",
    ["https://example.com/{{ slug }}?draft=1", "/articles/{{id}}", "{{site.url}}/{{id}}", None],
)
def test_a_preview_address_is_kept(admin: Client, typed: Table, address: str | None) -> None:
    changed = admin.patch(f"/collections/{typed.name}", {"meta": {"preview_url": address}}).data
    assert changed["meta"]["preview_url"] == address


def test_a_type_changes_only_into_one_that_its_markers_fit(admin: Client) -> None:
    things = table(
        admin, field("created", "timestamp", special="date-created"), field("done", "boolean")
    )
    created, done = (f"/fields/{things.name}/{name}" for name in ("created", "done"))
    assert admin.patch(created, {"type": "string"}).errors[0]["field"] == "meta.special"
    record = admin.patch(created, {"type": "datetime"}).data
    assert record["meta"]["special"] == ["date-created"]
    assert admin.patch(done, {"type": "string"}).data["meta"]["special"] is None


def test_a_marker_from_before_may_be_sent_back_with_its_record(stage: Stage) -> None:
    things = table(stage.admin, field("a", "integer"))
    stage.execute(
        f"UPDATE system_fields SET special = '{{date-created}}' WHERE collection = '{things.name}'"
    )
    record = stage.admin.get(f"/fields/{things.name}/a").data
    assert record["meta"]["special"] == ["date-created"]
    assert stage.admin.patch(f"/fields/{things.name}/a", record).data == record


def test_a_hash_has_room_for_what_argon2_makes(admin: Client) -> None:
    things = table(admin, field("word", "hash"), field("short", "string", max_length=127))
    path = f"/fields/{things.name}"
    assert admin.get(f"{path}/word").data["schema"]["max_length"] == 255
    for answer in (
        admin.post(path, field("b", "hash", max_length=127)),
        admin.post(path, field("b", "string", max_length=127, special="hash")),
        admin.patch(f"{path}/word", {"schema": {"max_length": 127}}),
        admin.patch(f"{path}/short", {"meta": {"special": ["hash"]}}),
    ):
        assert (answer.status, answer.codes) == (400, ["INVALID_PAYLOAD"]), answer
        assert answer.errors[0]["field"] == "schema.max_length", answer
    assert admin.patch(f"{path}/word", {"schema": {"max_length": 128}}).status == 200
    assert things.add({"word": "x" * 300})[0]["word"] == "**********"
