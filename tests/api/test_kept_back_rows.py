"""What is kept back is said: rows that a trigger skips, and lists of rows without a key."""

from __future__ import annotations

import pytest

from tests.client import Answer
from tests.members import may, member
from tests.things import Stage

KEPT = """
CREATE TABLE owners (id serial PRIMARY KEY, name text);
CREATE TABLE kept (id serial PRIMARY KEY, name text, owner integer REFERENCES owners);
CREATE TABLE below (id serial PRIMARY KEY, up integer REFERENCES kept ON DELETE CASCADE);
INSERT INTO owners (name) VALUES ('a');
INSERT INTO kept (name, owner) VALUES ('kept', 1), ('free', 1);
CREATE FUNCTION keep_back() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF coalesce(old.name, new.name) = 'kept' THEN RETURN NULL; END IF;
    IF tg_op = 'DELETE' THEN RETURN old; END IF;
    RETURN new;
END $$;
CREATE TRIGGER keep_back BEFORE INSERT OR UPDATE OR DELETE ON kept
    FOR EACH ROW EXECUTE FUNCTION keep_back();
"""
JUNCTIONS = """
CREATE TABLE books (id serial PRIMARY KEY, name text);
CREATE TABLE authors (id serial PRIMARY KEY, name text);
CREATE TABLE writes (book integer REFERENCES books, author integer REFERENCES authors,
    PRIMARY KEY (book, author));
CREATE TABLE notes (book integer REFERENCES books, note text);
INSERT INTO books (name) VALUES ('a');
INSERT INTO authors (name) VALUES ('b');
INSERT INTO writes VALUES (1, 1);
INSERT INTO notes VALUES (1, 'n');
"""
LISTS: list[object] = [
    [],
    [1],
    [{"author": 1}],
    [{"note": "x"}],
    {"create": [{"note": "x"}]},
    {"update": [{"id": 1}]},
    {"delete": [1]},
    {"delete": []},
]


@pytest.fixture(scope="module")
def kept(stage: Stage) -> Stage:
    stage.execute(KEPT)
    many = {"meta": {"one_field": "kept"}}
    assert stage.admin.patch("/relations/kept/owner", many).status == 200
    return stage


@pytest.fixture(scope="module")
def books(stage: Stage) -> Stage:
    stage.execute(JUNCTIONS)
    for name in ("writes", "notes"):
        many = {"meta": {"one_field": name}}
        assert stage.admin.patch(f"/relations/{name}/book", many).status == 200
    return stage


CHANGE = {"name": "other"}
CALLS: list[tuple[str, str, object]] = [
    ("POST", "/items/kept", {"name": "kept"}),
    ("POST", "/items/kept", [{"name": "kept"}, {"name": "free"}]),
    ("PATCH", "/items/kept/1", CHANGE),
    ("PATCH", "/items/kept", [{"id": 2, **CHANGE}, {"id": 1, **CHANGE}]),
    ("PATCH", "/items/kept", [{"id": 2, **CHANGE}, {"id": 1, "owner": None}]),
    ("PATCH", "/items/kept", {"keys": [1, 2], "data": CHANGE}),
    ("PATCH", "/items/kept", {"query": {}, "data": CHANGE}),
    ("DELETE", "/items/kept/1", None),
    ("DELETE", "/items/kept", [2, 1]),
    ("DELETE", "/items/kept", {"query": {}}),
    ("PATCH", "/items/owners/1", {"kept": [{"name": "kept"}]}),
    ("PATCH", "/items/owners/1", {"kept": {"update": [{"id": 1, **CHANGE}]}}),
    ("PATCH", "/items/owners/1", {"kept": []}),
    ("POST", "/utils/import/kept", [{"name": "kept"}]),
    ("POST", "/utils/import/kept", [{"id": 1, **CHANGE}]),
    (
        "POST",
        "/batch",
        {"operations": [{"method": "delete", "collection": "kept", "key": 1}]},
    ),
    (
        "POST",
        "/batch",
        {"operations": [{"method": "update", "collection": "kept", "key": 1, "data": CHANGE}]},
    ),
]


def refused(answer: Answer) -> tuple[int, list[str]]:
    return answer.status, answer.codes


@pytest.mark.quick(4)
@pytest.mark.parametrize("call", CALLS)
def test_a_row_that_a_trigger_keeps_back_is_not_written(
    kept: Stage, call: tuple[str, str, object]
) -> None:
    answer = kept.admin.send(*call)
    assert refused(answer) == (422, ["NOT_WRITTEN"])
    assert answer.errors[0]["collection"] == "kept"
    assert kept.value("SELECT array_agg(name ORDER BY id) FROM kept") == ["kept", "free"]


def test_a_row_that_is_not_there_is_still_not_found(kept: Stage) -> None:
    rule = {"id": {"_lt": 100}}
    actions = [
        may("kept", action=action, permissions=rule) for action in ("read", "update", "delete")
    ]
    for api in (kept.admin, member(kept, *actions)):
        for method in ("PATCH", "DELETE"):
            body = CHANGE if method == "PATCH" else None
            assert refused(api.send(method, "/items/kept/99", body)) == (404, ["NOT_FOUND"])
            assert refused(api.send(method, "/items/kept/1", body)) == (422, ["NOT_WRITTEN"])


@pytest.mark.quick(4)
@pytest.mark.parametrize("sent", LISTS)
def test_a_list_of_rows_without_a_key_is_refused_however_it_is_sent(
    books: Stage, sent: object
) -> None:
    item = {"notes": sent}
    for method, path, body in (
        ("POST", "/items/books", item),
        ("PATCH", "/items/books/1", item),
        ("PATCH", "/items/books", [{"id": 1, **item}]),
        ("PATCH", "/items/books", {"keys": [1], "data": item}),
    ):
        answer = books.admin.send(method, path, body)
        assert refused(answer) == (403, ["FORBIDDEN"])
        assert answer.errors[0]["path"] == ["notes"]
    assert books.value("SELECT count(*) FROM notes") == 1


def test_a_relation_to_a_key_of_two_columns_is_refused_in_true_words(books: Stage) -> None:
    books.execute("CREATE TABLE IF NOT EXISTS points (id serial PRIMARY KEY, to_writes integer)")
    body = {"collection": "points", "field": "to_writes", "related_collection": "writes"}
    answer = books.admin.post("/relations", body)
    assert "has a primary key of several columns" in answer.errors[0]["message"]
