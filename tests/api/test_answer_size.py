"""How large an answer may be, and how long a batch may take: past it nothing
is done, and little is held in memory.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from cms.config import Config
from cms.database.connections import Row
from cms.database.wire import Chunking, Wire
from cms.processes import memory
from tests.client import Answer, Client
from tests.file_imports import post_file
from tests.statements import counted_in_transactions
from tests.things import Stage, Table, aliases_of_text, field, table

pytestmark = pytest.mark.usefixtures("nested_collections")

LIMIT = 100_000


@pytest.fixture(scope="module")
def stage_settings(settings: Config) -> Config:
    """An application whose answers hold a hundred thousand bytes at most."""
    return replace(settings, max_answer_size=LIMIT)


@pytest.fixture(scope="module")
def notes(admin: Client) -> Table:
    """Ten notes of which each holds nine thousand bytes of text, and as many of JSON."""
    notes = table(
        admin,
        field("title", "string"),
        field("text", "text"),
        field("any", "json"),
        field("price", "decimal"),
    )
    for _ in range(10):
        notes.add({"title": "old", "text": "x" * 9_000, "any": ["y" * 8_998]})
    return notes


def is_too_large(answer: Answer) -> bool:
    (fault,) = answer.errors
    assert (answer.status, fault["code"]) == (400, "INVALID_QUERY"), answer.text
    return bool(fault["limit"] == LIMIT)


@pytest.mark.release
def test_a_list_may_be_so_large_and_no_larger(notes: Table) -> None:
    assert len(notes.get(fields="title,text").data) == 10
    assert len(notes.get(fields="title,text,any", limit=5).data) == 5
    for query in (
        "fields=title,text,any",
        "fields=*&limit=-1",
        "fields=any,text&sort=-title&search=1",
        aliases_of_text(10),
    ):
        if "search" in query:
            assert notes.read(query).status == 200
        else:
            assert is_too_large(notes.read(query))
    assert is_too_large(notes.api.search(notes.path, {"fields": ["text", "any"], "limit": 10}))
    assert len(notes.get(fields="title").data) == 10


def test_one_item_may_be_so_large_and_no_larger(notes: Table) -> None:
    assert len(notes.api.get(f"{notes.path}/1?{aliases_of_text(10)}").data) == 10
    assert is_too_large(notes.api.get(f"{notes.path}/1?{aliases_of_text(12)}"))


def test_many_short_rows_are_too_large_together(admin: Client, stage: Stage) -> None:
    short = table(admin, field("n", "integer"))
    stage.execute(f"INSERT INTO {short.name} (n) SELECT n FROM generate_series(1, 20000) AS n")
    assert is_too_large(short.get(limit=-1))
    assert len(short.get(limit=1000).data) == 1000


def test_arrays_are_counted(admin: Client, stage: Stage) -> None:
    lines = table(admin, field("n", "integer"))
    stage.execute(f"ALTER TABLE {lines.name} ADD words text[]")
    twelve = "SELECT ARRAY[repeat('x', 9000)] FROM generate_series(1, 12)"
    stage.execute(f"INSERT INTO {lines.name} (words) {twelve}")
    assert is_too_large(lines.get())
    assert len(lines.get(limit=3).data) == 3


def test_lists_in_items_are_counted(admin: Client) -> None:
    people = Table(admin, "people")
    (ann,) = people.add({"name": "Ann", "posts": [{"title": "x" * 200} for _ in range(480)]})
    assert is_too_large(
        people.read(f"fields=posts.title&filter[id]={ann['id']}&deep[posts][_limit]=-1")
    )
    assert is_too_large(
        people.api.get(f"/items/people/{ann['id']}?fields=posts.*&deep[posts][_limit]=-1")
    )


def test_exports_are_as_large_as_they_are(notes: Table) -> None:
    assert len(notes.read("export=json&fields=*").content) > LIMIT


def test_a_write_whose_answer_would_be_too_large_is_not_done(notes: Table) -> None:
    before = notes.column("title", "fields=title&sort=id")
    large = aliases_of_text(12)
    assert is_too_large(notes.api.patch(f"{notes.path}/1?{large}", {"title": "changed"}))
    assert is_too_large(
        notes.api.patch(f"{notes.path}?fields=*", {"query": {}, "data": {"title": "changed"}})
    )
    assert is_too_large(
        notes.api.post(f"{notes.path}?{large}", {"title": "new", "text": "x" * 9_000})
    )
    assert notes.column("title", "fields=title&sort=id") == before


def test_a_call_that_could_not_be_answered_is_not_begun(
    admin: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = admin.get("/users?aggregate[count]=*").data
    with counted_in_transactions(monkeypatch) as statements:
        assert is_too_large(admin.send("POST", "/users", raw=f"[{','.join(['{}'] * 1_000)}]"))
    assert [text for text in statements if "INSERT" in text] == []
    assert admin.get("/users?aggregate[count]=*").data == before
    assert len(admin.send("POST", "/users?fields=id", raw="[{},{}]").data) == 2


def test_what_a_small_body_makes_large_is_not_written(stage: Stage, admin: Client) -> None:
    """An exponent is written out, and defaults and short values come
    again with every item and every name.
    """
    prices = table(admin, field("price", "decimal"), field("short", "decimal", numeric_precision=9))
    stage.execute(f"ALTER TABLE {prices.name} ADD kind text DEFAULT '{'z' * 1_000}'")
    names = "".join(f"&alias[t{n}]=" + "{0}" for n in range(10))
    names = f"fields={','.join(f't{n}' for n in range(10))}{names}"

    def post(path: str, query: str, number: int, item: str) -> Answer:
        return admin.send("POST", f"{path}?{query}", raw=f"[{','.join([item] * number)}]")

    for query_string, number, item in (
        ("price", 11, '{"price":1e999}'),
        ("id", 1_600, "{}"),
        ("kind", 11, "{}"),
    ):
        assert is_too_large(post(prices.path, names.format(query_string), number, item))
        assert len(post(prices.path, names.format(query_string), 2, item).data) == 2
    assert len(prices.get(fields="id").data) == 6
    assert len(post(prices.path, "fields=short", 1_000, '{"short":1}').data) == 1_000


@pytest.mark.release
def test_long_defaults_are_counted_for_every_item(
    make_client: Any, stage: Stage, admin: Client
) -> None:
    items = table(admin, field("n", "integer"))
    stage.execute(f"ALTER TABLE {items.name} ADD note text DEFAULT '{'z' * 50_000}'")
    api = make_client(database_url=stage.dsn, max_answer_size=4_000_000).bearing(stage.admin._token)
    answer = api.post(f"{items.path}?fields=note", [{"n": 1}] * 100)
    assert (answer.status, answer.errors[0]["limit"]) == (400, 4_000_000)
    assert items.get(fields="id").data == []
    assert len(api.post(f"{items.path}?fields=note", [{"n": 1}] * 50).data) == 50


@pytest.mark.release
def test_memory_is_given_back_after_large_writes_and_imports(
    make_client: Any, stage: Stage, admin: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    trims: list[int] = []
    monkeypatch.setattr(memory._TRIMMER, "schedule", lambda: trims.append(1))
    items = table(admin, field("n", "integer"), field("text", "text"))
    stage.execute(f"ALTER TABLE {items.name} ADD note text DEFAULT '{'z' * 50_000}'")
    api = make_client(database_url=stage.dsn).bearing(stage.admin._token)
    assert len(api.post(f"{items.path}?fields=n", [{"n": 1}] * 50).data) == 50
    assert trims == []
    assert len(api.post(f"{items.path}?fields=note", [{"n": 1}] * 50).data) == 50
    assert trims == [1]
    file = "n,text\r\n" + f"1,{'x' * 10_000}\r\n" * 150
    for rows, status in ((file, 200), (file + "no,\r\n", 400)):
        answer = post_file(items, rows, api=api)
        assert answer.status == status, answer
    assert trims == [1, 1, 1]


def test_all_answers_of_a_batch_are_one(notes: Table) -> None:
    read = {"method": "read", "collection": notes.name, "query": {"fields": "text", "limit": 5}}
    create = {"method": "create", "collection": notes.name, "data": {"title": "new"}}
    assert len(notes.api.post("/batch", {"operations": [read, read]}).data) == 2
    answer = notes.api.post("/batch", {"operations": [create, read, read, read]})
    assert is_too_large(answer)
    assert answer.errors[0]["operation"] == 3
    assert "new" not in notes.column("title", "fields=title")


def test_the_database_goes_on_after_an_answer_that_was_given_up(notes: Table) -> None:
    for _ in range(10):
        assert is_too_large(notes.read("fields=*&limit=-1"))
        assert len(notes.get(fields="title").data) == 10


@pytest.mark.quick(2)
@pytest.mark.parametrize(
    ("path", "chunked"),
    [
        ("posts?fields=title,author.name,tags.tags_id.name&limit=25", 0),
        ("posts?fields=title&limit=1000", 0),
        ("posts?fields=title&limit=-1", 1),
        ("things?fields=title,text&limit=25", 0),
        ("things?fields=title,text&limit=100", 1),
        ("things?fields=id&sort=text&limit=100", 0),
        ("things?fields=id&sort=text&limit=100&meta=next_cursor", 1),
        ("things?fields=price&limit=1000", 0),
        ("things?fields=price&limit=60000", 1),
    ],
)
def test_only_what_may_be_too_large_is_taken_in_portions(
    make_client: Any,
    notes: Table,
    stage: Stage,
    monkeypatch: pytest.MonkeyPatch,
    path: str,
    chunked: int,
) -> None:
    api = make_client(database_url=stage.dsn).bearing(stage.admin._token)
    taken: list[Chunking] = []
    take = Wire._run_in_chunks

    def spy(
        wire: Wire, text: str, values: list[object], chunking: Chunking, *, prepare: bool
    ) -> list[Row]:
        taken.append(chunking)
        return take(wire, text, values, chunking, prepare=prepare)

    monkeypatch.setattr(Wire, "_run_in_chunks", spy)
    assert api.get(f"/items/{path}".replace("things", notes.name)).status == 200
    assert len(taken) == chunked


@pytest.mark.release
def test_a_batch_takes_no_longer_than_one_statement_may(
    make_client: Any, stage: Stage, admin: Client
) -> None:
    things = table(admin, field("n", "integer"))
    stage.execute("CREATE VIEW slow AS SELECT 1 AS id, pg_sleep(0.4)::text AS slept")
    api = make_client(database_url=stage.dsn, db_statement_timeout=timedelta(seconds=1)).bearing(
        stage.admin._token
    )
    create = {"method": "create", "collection": things.name, "data": {"n": 1}}
    read = {"method": "read", "collection": "slow", "query": {"fields": "slept"}}
    assert api.post("/batch", {"operations": [read]}).status == 200
    answer = api.post("/batch", {"operations": [create, *[read] * 4]})
    assert (answer.status, answer.codes) == (503, ["SERVICE_UNAVAILABLE"])
    assert things.get().data == []
    assert api.post("/batch", {"operations": [create, read]}).status == 200
