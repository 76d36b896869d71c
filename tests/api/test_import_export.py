"""What an export wrote can be imported again, whatever the types; and files of any length."""

from __future__ import annotations

import io
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import pytest

from cms.config import Config
from cms.extensions import OWN
from cms.items.transfer.imports import Upload, import_file
from cms.store.identity import Identity
from cms.store.store import Store
from tests.client import Client
from tests.file_imports import post_file
from tests.memory import resident_bytes
from tests.things import Json, Stage, Table, field, table

pytestmark = pytest.mark.release

FIELDS = [
    field("string", "string"),
    field("text", "text"),
    field("uuid", "uuid"),
    field("integer", "integer"),
    field("big", "bigInteger"),
    field("float", "float"),
    field("decimal", "decimal"),
    field("boolean", "boolean"),
    field("date", "date"),
    field("time", "time"),
    field("datetime", "datetime"),
    field("timestamp", "timestamp"),
    field("json", "json"),
    field("csv", "csv"),
    field("binary", "binary"),
    field("parent", "integer"),
]
ROWS: list[Json] = [
    {
        "string": "=SUM(A1)",
        "text": 'a "quoted"\r\nline\n\nwith ünïcode 👩‍👩‍👧, commas\tand\rreturns ',
        "uuid": "6f1c4d6e-0d3b-4c89-9b2c-2f7c3f1f9a11",
        "integer": -2147483648,
        "big": 9223372036854775807,
        "float": -1.7976931348623157e308,
        "decimal": "1234567890123456789.012345678901234567891",
        "boolean": True,
        "date": "0001-01-01",
        "time": "23:59:59",
        "datetime": "2024-02-29T23:30:00",
        "timestamp": "2024-02-29T23:30:00.123Z",
        "json": {"z": 1, "a": {"b": [1, None, "é", '"']}},
        "csv": ["a", "b c", "é"],
        "binary": "+/8AAQ==",
    },
    {
        "string": "'=x",
        "text": "''-y",
        "float": 5e-324,
        "decimal": -5,
        "boolean": False,
        "json": "text",
        "csv": [],
    },
    {"string": "@", "text": "'it is", "integer": 0, "json": [1, "2"], "parent": 1},
    {"string": "[1]", "text": "{", "json": 0, "csv": ["[a", "null"], "parent": 1},
    {"string": "null", "text": " ", "json": True, "csv": ["1"]},
    {},
]


@pytest.fixture
def typed_rows(admin: Client) -> Table:
    typed_rows = table(admin, *FIELDS)
    relation = {
        "collection": typed_rows.name,
        "field": "parent",
        "related_collection": typed_rows.name,
    }
    assert admin.post("/relations", relation).status == 200
    typed_rows.add(*ROWS)
    return typed_rows


@pytest.mark.quick(1)
@pytest.mark.parametrize("form", ["csv", "json", "jsonl"])
def test_an_export_can_be_imported_again(typed_rows: Table, stage: Stage, form: str) -> None:
    before = typed_rows.get(sort="id").text
    exported = typed_rows.get(export=form).text
    stage.execute(f"DELETE FROM {typed_rows.name}")
    answer = post_file(typed_rows, exported.encode(), form=form)
    assert answer.data == {"created": len(ROWS), "updated": 0}
    assert typed_rows.get(sort="id").text == before
    again = post_file(typed_rows, exported.encode(), form=form)
    assert again.data == {"created": 0, "updated": len(ROWS)}
    assert typed_rows.get(sort="id").text == before
    assert typed_rows.get(export=form).text == exported


def test_secrets_of_an_export_stay_as_they_are(admin: Client, stage: Stage) -> None:
    things = table(admin, field("name", "string"), field("code", "hash", special="hash"))
    things.add({"name": "a", "code": "secret"}, {"name": "b"})
    kept = stage.value(f"SELECT code FROM {things.name} WHERE id = 1")
    exported = things.get(export="csv").text
    assert "1,a,**********" in exported
    assert post_file(things, exported).data == {"created": 0, "updated": 2}
    assert stage.value(f"SELECT code FROM {things.name} WHERE id = 1") == kept


@pytest.mark.quick(1)
@pytest.mark.parametrize("form", ["csv", "jsonl"])
def test_an_export_of_all_rows_holds_all_that_belongs_to_them(admin: Client, form: str) -> None:
    parents = table(admin, field("name", "string"))
    children = table(admin, field("parent", "integer"))
    relation = {"collection": children.name, "field": "parent", "related_collection": parents.name}
    assert admin.post("/relations", {**relation, "meta": {"one_field": "children"}}).status == 200
    parents.add({"name": "a"})
    children.add(*[{"parent": 1}] * 150)
    exported = parents.get(export=form, limit=-1).text
    assert post_file(parents, exported, form=form).data == {"created": 0, "updated": 1}
    assert children.read("filter[parent]=1&aggregate[count]=*").data == [{"count": 150}]
    for query, number in (
        ("", 100),
        ("limit=-1&deep[children][_limit]=100", 100),
        ("limit=-1", 150),
    ):
        for path in ("children", "children.id"):
            text = parents.read(f"export=jsonl&fields={path}&{query}").text
            assert len(json.loads(text)["children"]) == number, (path, query)


@pytest.mark.release
def test_100_000_rows_take_no_more_memory_than_a_batch(stage: Stage, settings: Config) -> None:
    things = table(
        stage.admin, field("name", "string"), field("size", "integer"), accountability=None
    )
    file = io.BytesIO(
        b"name,size\n" + b"".join(b"%s %d,%d\n" % (b"x" * 60, n, n) for n in range(100_000))
    )
    store = Store(replace(settings, database_url=stage.dsn), hooks=OWN.store_hooks())
    identity = Identity(user=stage.admin.get("/users/me").data["id"])
    with watched() as memory:
        answer = import_file(store, identity, things.name, Upload("csv", file, 1 << 20))
    store.close()
    assert json.loads(answer or b"") == {"data": {"created": 100_000, "updated": 0}}
    assert stage.value(f"SELECT sum(size) FROM {things.name}") == sum(range(100_000))
    assert memory.peak - memory.before < 30_000_000


class Memory:
    """The memory of this process: before, and the most that it had since."""

    def __init__(self) -> None:
        self.before = self.peak = resident_bytes()


@contextmanager
def watched() -> Iterator[Memory]:
    memory = Memory()
    done = threading.Event()

    def watch() -> None:
        while not done.wait(0.02):
            memory.peak = max(memory.peak, resident_bytes())

    thread = threading.Thread(target=watch)
    thread.start()
    yield memory
    done.set()
    thread.join()


RELATED = "id,title,author.id,author.name,notes.id,notes.text,tags.id,tags.tag.id,tags.tag.name"


@pytest.fixture
def library(stage: Stage) -> list[Table]:
    """Books with their authors, notes and tags, and the tables of all these."""
    name = field("name", "string")
    authors = table(stage.admin, name)
    books = table(stage.admin, field("title", "string"), field("author", "integer"))
    notes = table(stage.admin, field("text", "string"), field("book", "integer"))
    tags = table(stage.admin, name)
    links = table(stage.admin, field("book", "integer"), field("tag", "integer"))
    for many, column, one, meta in (
        (books, "author", authors, {"one_field": "books"}),
        (notes, "book", books, {"one_field": "notes"}),
        (links, "book", books, {"one_field": "tags", "junction_field": "tag"}),
        (links, "tag", tags, {"junction_field": "book"}),
    ):
        relation = {"collection": many.name, "field": column, "related_collection": one.name}
        assert stage.admin.post("/relations", {**relation, "meta": meta}).status == 200
    first: Json = {"title": "x", "author": {"name": "Ann"}, "notes": [{"text": "p"}, {"text": "q"}]}
    first["tags"] = [{"tag": {"name": "red"}}, {"tag": {"name": "blue"}}]
    books.add(first, {"title": "y", "author": 1, "notes": [{"text": "r"}]})
    return [books, links, notes, tags, authors]


@pytest.mark.quick(1)
@pytest.mark.parametrize("form", ["csv", "json", "jsonl"])
def test_an_export_with_related_items_and_their_keys_is_imported_over_them_and_into_empty_tables(
    library: list[Table], form: str
) -> None:
    books = library[0]
    exported = books.get(fields=RELATED, export=form, limit=-1).content
    assert post_file(books, exported, form=form).data == {"created": 0, "updated": 2}
    assert books.get(fields=RELATED, export=form, limit=-1).content == exported
    for things in library:
        assert things.api.delete(things.path, {"query": {}}).status == 204
    assert post_file(books, exported, form=form).data == {"created": 2, "updated": 0}
    assert books.get(fields=RELATED, export=form, limit=-1).content == exported
