"""Documents that are no snapshots: refused with their problems, and nothing of them stays."""

from __future__ import annotations

import json
from copy import deepcopy
from typing import Any

import pytest

from tests.client import Answer, Client
from tests.things import Json, Stage, make_collections

TABLE: Json = {"collection": "new", "schema": {}, "meta": {}}
DEEP: Any = "leaf"
for _ in range(250):
    DEEP = {"deeper": DEEP}


@pytest.fixture(scope="module", autouse=True)
def _make_things(stage: Stage) -> None:
    make_collections(stage.admin, {"things": [{"field": "name", "type": "string"}]}, [])


@pytest.fixture
def document(admin: Client) -> Json:
    snapshot: Json = admin.get("/schema/snapshot").data
    return snapshot


def refused(answer: Answer) -> None:
    assert 400 <= answer.status < 500, answer
    assert answer.codes


def diff_and_apply(admin: Client, document: object) -> Answer:
    answer = admin.post("/schema/diff", document)
    if answer.status != 200:
        return answer
    return admin.post("/schema/apply?allow_destructive=true", answer.data)


BODIES: list[Any] = [
    None,
    [],
    "x",
    1,
    {},
    {"version": 1},
    {"version": True, "collections": [], "fields": [], "relations": []},
    {"version": 2, "collections": [], "fields": [], "relations": []},
    {"version": 1, "vendor": "mysql", "collections": [], "fields": [], "relations": []},
    {"version": 1, "collections": {}, "fields": [], "relations": []},
    {"version": 1, "collections": [], "fields": [], "relations": [], "more": 1},
    {"version": 1, "collections": [1, None, [], "x"], "fields": [], "relations": []},
    {"version": 1, "collections": [{}], "fields": [{}], "relations": [{}]},
]


@pytest.mark.parametrize("body", BODIES)
def test_what_is_no_snapshot_is_refused(admin: Client, body: Any) -> None:
    answer = admin.post("/schema/diff", body)
    assert (answer.status, set(answer.codes)) == (400, {"INVALID_PAYLOAD"})


RECORDS: list[tuple[str, Any]] = [
    ("collections", TABLE | {"collection": 5}),
    ("collections", TABLE | {"collection": "system_users"}),
    ("collections", TABLE | {"collection": "system_new"}),
    ("collections", TABLE | {"collection": "things"}),
    ("collections", TABLE | {"collection": ""}),
    ("collections", TABLE | {"collection": "x" * 100}),
    ("collections", TABLE | {"collection": 'a"; DROP TABLE things; --\x00'}),
    ("collections", TABLE | {"meta": []}),
    ("collections", TABLE | {"meta": {"unknown": 1}}),
    ("collections", TABLE | {"meta": {"group": "nowhere"}}),
    ("collections", TABLE | {"meta": {"group": "system_users"}}),
    ("collections", TABLE | {"meta": {"sort_field": "nowhere"}}),
    ("collections", TABLE | {"meta": {"archive_field": "nowhere"}}),
    ("collections", TABLE | {"meta": {"item_duplication_fields": ["a.b"]}}),
    ("collections", TABLE | {"schema": "x"}),
    ("collections", TABLE | {"renamed_from": "things"}),
    ("collections", TABLE | {"fields": []}),
    ("fields", {"collection": "nowhere", "field": "a", "type": "string"}),
    ("fields", {"collection": "system_users", "field": "a", "type": "string"}),
    ("fields", {"collection": "things", "field": "a"}),
    ("fields", {"collection": "things", "field": "a", "type": "unknown"}),
    ("fields", {"collection": "things", "field": "a", "type": "nothing"}),
    ("fields", {"collection": "things", "field": "a", "type": ["string"]}),
    ("fields", {"collection": "things", "field": "name", "type": "string"}),
    ("fields", {"collection": "things", "field": "a b;", "type": "string"}),
    ("fields", {"collection": "things", "field": None, "type": "string"}),
    ("fields", {"collection": "things", "field": "a", "type": "string", "renamed_from": 1}),
    ("fields", {"collection": "things", "field": "a", "type": "string", "meta": {"special": 1}}),
    (
        "fields",
        {"collection": "things", "field": "a", "type": "integer", "schema": {"max_length": 3}},
    ),
    (
        "fields",
        {"collection": "things", "field": "a", "type": "integer", "schema": {"default_value": "x"}},
    ),
    (
        "fields",
        {
            "collection": "things",
            "field": "a",
            "type": "integer",
            "schema": {"is_primary_key": True},
        },
    ),
    ("relations", {"collection": "things", "field": "nowhere", "related_collection": "things"}),
    ("relations", {"collection": "things", "field": "name", "related_collection": "nowhere"}),
    ("relations", {"collection": "things", "field": "name", "related_collection": 5}),
    ("relations", {"collection": "things", "field": "name", "related_collection": "things"}),
    ("relations", {"collection": "things", "field": "name", "related_collection": None}),
    (
        "relations",
        {
            "collection": "things",
            "field": "id",
            "related_collection": "things",
            "schema": {"on_delete": "SET NULL"},
        },
    ),
]


@pytest.mark.quick(8)
@pytest.mark.parametrize(("section", "record"), RECORDS)
def test_a_wrong_record_is_refused_and_leaves_nothing(
    admin: Client, document: Json, section: str, record: Any
) -> None:
    hostile = deepcopy(document)
    hostile["collections"].append({"collection": "beside", "schema": {}, "meta": {}})
    hostile[section].append(record)
    refused(diff_and_apply(admin, hostile))
    assert admin.get("/schema/snapshot").data == document


@pytest.mark.quick(8)
@pytest.mark.parametrize(("section", "record"), RECORDS)
def test_a_wrong_record_in_a_diff_is_refused(
    admin: Client, document: Json, section: str, record: Any
) -> None:
    target = {**document, "collections": [*document["collections"], TABLE]}
    diff = admin.post("/schema/diff", target).data
    names = ("collection",) if section == "collections" else ("collection", "field")
    entry = {key: record.get(key) for key in names}
    diff["diff"][section].append({**entry, "diff": [{"kind": "N", "rhs": record}]})
    answer = admin.post("/schema/apply?allow_destructive=true", diff)
    # What replaces a record that is there may be right, too.
    if answer.status != 204:
        refused(answer)
        assert admin.get("/schema/snapshot").data == document
    admin.delete("/collections/new")


def entry_with(*changes: Any) -> Json:
    return {"collection": "things", "diff": list(changes)}


ENTRIES: list[Any] = [
    1,
    None,
    {},
    {"collection": "things"},
    {"collection": "things", "diff": {}},
    entry_with(None),
    entry_with({}),
    entry_with({"kind": "A", "path": ["meta"], "index": 0, "item": {"kind": "N", "rhs": 1}}),
    entry_with({"kind": "E", "path": "meta", "rhs": 1}),
    entry_with({"kind": "E", "path": [1], "rhs": 1}),
    entry_with({"kind": "E", "path": ["meta", "note"]}),
    entry_with({"kind": "E", "path": ["meta"], "rhs": 7}),
    entry_with({"kind": "E", "path": ["meta", "note", "deeper"], "rhs": 7}),
    entry_with({"kind": "E", "path": ["nowhere"], "rhs": 7}),
    entry_with({"kind": "E", "path": ["collection"], "rhs": "other"}),
    entry_with({"kind": "E", "path": ["meta", "color"], "rhs": "red"}),
    entry_with({"kind": "E", "rhs": "x"}),
    entry_with({"kind": "N", "rhs": {"collection": "other"}}),
    {"collection": "nowhere", "diff": [{"kind": "E", "path": ["meta", "note"], "rhs": "x"}]},
    {"collection": "things", "diff": [], "renamed_from": "other"},
    {"collection": "system_users", "diff": [{"kind": "N", "rhs": {"collection": "system_users"}}]},
]


@pytest.mark.parametrize("entry", ENTRIES)
def test_a_wrong_entry_of_a_diff_is_refused(admin: Client, document: Json, entry: Any) -> None:
    target = {**document, "collections": [*document["collections"], TABLE]}
    diff = admin.post("/schema/diff", target).data
    diff["diff"]["collections"].append(entry)
    refused(admin.post("/schema/apply?allow_destructive=true", diff))
    assert admin.get("/schema/snapshot").data == document


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"hash": 1, "diff": {}},
        {"hash": "x", "diff": []},
        {"hash": "x"},
        {"diff": {"collections": []}},
        {"hash": "x", "diff": {"users": []}},
        {"hash": "x", "diff": {"fields": 1}},
        {"hash": "x", "diff": {}, "allow_destructive": "yes"},
        {"hash": "x", "diff": {}, "more": 1},
    ],
)
def test_what_is_no_diff_is_refused(admin: Client, body: Json) -> None:
    answer = admin.post("/schema/apply", body)
    assert (answer.status, set(answer.codes)) == (400, {"INVALID_PAYLOAD"})


def test_deletions_of_system_collections_change_nothing(admin: Client, document: Json) -> None:
    target = {**document, "collections": [*document["collections"], TABLE]}
    diff = admin.post("/schema/diff", target).data
    for section, names in {"collections": {}, "fields": {"field": "email"}}.items():
        entry = {"collection": "system_users", **names, "diff": [{"kind": "D"}]}
        diff["diff"][section].append(entry)
    refused(admin.post("/schema/apply?allow_destructive=true", diff))
    assert admin.get("/users/me").status == 200


def test_groups_in_a_cycle_are_refused(admin: Client, document: Json) -> None:
    hostile = deepcopy(document)
    for name, group in {"one": "two", "two": "one"}.items():
        hostile["collections"].append({"collection": name, "meta": {"group": group}})
    refused(diff_and_apply(admin, hostile))
    assert admin.get("/schema/snapshot").data == document


def test_relations_in_a_cycle_are_made(admin: Client, document: Json) -> None:
    target = deepcopy(document)
    for name, other in {"hens": "eggs", "eggs": "hens"}.items():
        target["collections"].append({"collection": name, "schema": {}, "meta": {}})
        target["fields"].append({"collection": name, "field": "from", "type": "integer"})
        target["fields"].append(
            {
                "collection": name,
                "field": "id",
                "type": "integer",
                "schema": {"is_primary_key": True, "has_auto_increment": True},
            }
        )
        relation = {"collection": name, "field": "from", "related_collection": other}
        target["relations"].append({**relation, "meta": {}})
    assert diff_and_apply(admin, target).status == 204
    assert diff_and_apply(admin, document).status == 204
    assert admin.get("/schema/snapshot").data == document


def test_two_relations_that_fill_one_list_are_refused(admin: Client, document: Json) -> None:
    hostile = deepcopy(document)
    for name in ("one", "two"):
        field = {"collection": "things", "field": name, "type": "integer"}
        hostile["fields"].append(field)
        relation = {"collection": "things", "field": name, "related_collection": "things"}
        hostile["relations"].append({**relation, "meta": {"one_field": "list"}})
    refused(diff_and_apply(admin, hostile))
    assert admin.get("/schema/snapshot").data == document


def test_deep_documents_are_refused(admin: Client, document: Json) -> None:
    hostile = deepcopy(document)
    (name,) = (record for record in hostile["fields"] if record["field"] == "name")
    name["meta"] = {"options": DEEP}
    refused(diff_and_apply(admin, hostile))
    raw = json.dumps(document)[:-1] + ', "more": ' + "[" * 100_000 + "]" * 100_000 + "}"
    for path in ("/schema/diff", "/schema/apply"):
        refused(admin.send("POST", path, raw=raw))
    assert admin.get("/schema/snapshot").data == document


def test_a_body_that_is_too_large_is_refused(admin: Client) -> None:
    raw = b"x: " + b"y" * 2_000_000
    answer = admin.send("POST", "/schema/diff", raw=raw, **{"Content-Type": "text/yaml"})
    assert (answer.status, answer.codes) == (413, ["CONTENT_TOO_LARGE"])


YAML = [
    "",
    "- 1\n- 2",
    "a: [",
    "a: 1\na: 2",
    "? [1]\n: 2",
    "? {a: 1}\n: 2",
    "a: !!python/object/apply:os.system ['true']",
    "a: !!binary aGk=",
    "a: !own x",
    "a: &x 1\nb: *x",
    "a: &x [*x]",
    "a: 1\n---\nb: 2",
    "a: \x07",
    'a: "\\ud800"',
    'a: "\\0"',
    "version: 1\ncollections: 2020-01-01\nfields: []\nrelations: []",
    "[" * 100_000,
    "- " * 100_000,
    "a: " + "{a: " * 100_000,
    "\ta: 1",
    "%YAML 9.9\n---\na: 1",
]


@pytest.mark.parametrize("text", YAML, ids=range(len(YAML)))
def test_hostile_yaml_is_refused(admin: Client, text: str) -> None:
    raw = text.encode()
    answer = admin.send("POST", "/schema/diff", raw=raw, **{"Content-Type": "application/yaml"})
    assert (answer.status, set(answer.codes)) == (400, {"INVALID_PAYLOAD"}), answer


def test_bytes_that_are_no_text_are_refused(admin: Client) -> None:
    media_type = {"Content-Type": "application/yaml"}
    for raw in (b"\xff\xfe\x00", b"\x80abc", "a: ä".encode("utf-16")):
        assert admin.send("POST", "/schema/diff", raw=raw, **media_type).status == 400


def test_many_aliases_take_no_time(admin: Client) -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    for number in range(1, 30):
        aliases = ", ".join([f"*a{number - 1}"] * 10)
        lines.append(f"a{number}: &a{number} [{aliases}]")
    raw = "\n".join(lines).encode()
    answer = admin.send("POST", "/schema/diff", raw=raw, **{"Content-Type": "application/yaml"})
    assert answer.errors[0]["reason"].endswith("it has an alias at line 2")
