"""A write under rules is one statement where it can be, and comes to the same as in a
transaction.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

import psycopg
import pytest

from cms.items.write import single_statement
from tests.client import Answer, Client
from tests.members import Json, may, member
from tests.statements import counted_in_transactions
from tests.things import Stage, Table, field, table

DRAFT: Json = {"status": {"_eq": "draft"}}
NEVER: Json = {"id": {"_lt": 0}}
WAITING = (
    "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND "
    "wait_event_type = 'Lock'"
)


@dataclass(frozen=True)
class RuledTables:
    stage: Stage
    people: Table
    posts: Table
    notes: Table

    connection: psycopg.Connection[Any]

    def fresh(self) -> None:
        """Let the same rows be there with the same keys, and no history."""
        people, posts, notes = (
            collection.name for collection in (self.people, self.posts, self.notes)
        )
        self.connection.execute(
            f"""
            DELETE FROM {notes}; DELETE FROM {posts}; DELETE FROM {people};
            DELETE FROM system_revisions; DELETE FROM system_activity;
            INSERT INTO {people} (id, name, rank) VALUES (1, 'ann', 1), (2, 'bob', 2);
            INSERT INTO {posts} (id, title, status, author)
            VALUES (1, 'a', 'draft', 1), (2, 'b', 'live', 1), (3, 'c', 'draft', 2);
            INSERT INTO {notes} (id, text, post) VALUES (1, 'x', 1), (2, 'y', 3);
            SELECT setval(pg_get_serial_sequence('{posts}', 'id'), 3);
            """.encode()
        )

    def state(self) -> object:
        """Return all rows, and how many entries the history has."""
        return self.connection.execute(
            f"""
            SELECT (SELECT json_agg(p ORDER BY id) FROM {self.posts.name} AS p),
                   (SELECT count(*) FROM system_activity), (SELECT count(*) FROM system_revisions)
            """.encode()
        ).fetchall()


@pytest.fixture(scope="module")
def tables(stage: Stage, admin: Client) -> Iterator[RuledTables]:
    people = table(admin, field("name", "string"), field("rank", "integer"))
    posts = table(
        admin,
        field("title", "string"),
        field("status", "string", default_value="draft"),
        field("note", "string"),
        field("author", "integer"),
    )
    notes = table(admin, field("text", "string"), field("post", "integer"))
    for many, name, one, back in (
        (posts, "author", people, "posts"),
        (notes, "post", posts, "notes"),
    ):
        relation = {
            "collection": many.name,
            "field": name,
            "related_collection": one.name,
            "meta": {"one_field": back},
        }
        assert admin.post("/relations", relation).status == 200
    with psycopg.connect(stage.dsn, autocommit=True) as connection:
        yield RuledTables(stage, people, posts, notes, connection)


Rights = Callable[[str], list[Json]]


def with_rule(rule: Json, read: Json | None = None, *fields: str, **changes: object) -> Rights:
    """The same rule for all that is written; of reads another, and only some fields."""

    def rights(name: str) -> list[Json]:
        written = [
            may(name, action=action, permissions=rule, **changes) for action in ("create", "update")
        ]
        deleted = may(name, action="delete", permissions=rule)
        return [*written, deleted, may(name, *fields, permissions={} if read is None else read)]

    return rights


def several(name: str) -> list[Json]:
    """Of several permissions those count that hold for the row."""
    return [
        *with_rule(DRAFT)(name),
        may(name, "note", action="update", permissions={"author": {"rank": {"_eq": 1}}}),
        may(name, action="delete", permissions={"title": {"_eq": "b"}}),
        may(
            name,
            action="create",
            permissions={"note": {"_eq": "n"}},
            validation={"title": {"_eq": "t"}},
        ),
    ]


RIGHTS: dict[str, Rights] = {
    "a field": with_rule(DRAFT),
    "a field, and reads another": with_rule(DRAFT, {"title": {"_in": ["a", "b", "new"]}}),
    "a field, and reads nothing of it": with_rule(DRAFT, NEVER),
    "a field, and reads some fields": with_rule(DRAFT, DRAFT, "id", "title"),
    "what a relation leads to": with_rule(
        {"author": {"rank": {"_eq": 1}}}, {"author": {"name": {"_neq": "bob"}}}
    ),
    "lists": with_rule(
        {"_or": [{"notes": {"_none": {"text": {"_eq": "y"}}}}, {"title": {"_eq": "never"}}]}
    ),
    "rows beside it": with_rule({"author": {"posts": {"_some": {"title": {"_eq": "b"}}}}}),
    "the caller": with_rule({"_or": [DRAFT, {"note": {"_eq": "$CURRENT_USER"}}]}),
    "a preset": with_rule(
        DRAFT, None, presets={"note": "preset"}, validation={"title": {"_neq": "bad"}}
    ),
    "null": with_rule({"note": {"_neq": "n"}}, {"note": {"_null": True}}),
    "several": several,
}

CALLS: tuple[tuple[str, str, object], ...] = (
    ("POST", "", {"title": "new", "status": "draft", "author": 1}),
    ("POST", "", {"title": "new"}),
    ("POST", "", {"title": "new", "status": "live", "author": 2, "note": "n"}),
    ("POST", "", {"title": "bad", "status": "draft", "author": 1}),
    ("POST", "", [{"title": "new", "author": 1}, {"title": "new", "author": 1}]),
    ("POST", "", [{"title": "new", "author": 1}, {"title": "new", "status": "live", "author": 2}]),
    ("POST", "?fields=title,author.name,notes.text", {"title": "t", "note": "n", "author": 1}),
    ("PATCH", "/1", {"title": "A"}),
    ("PATCH", "/1", {"status": "live"}),
    ("PATCH", "/2", {"title": "B"}),
    ("PATCH", "/2", {"title": "B", "status": "draft"}),
    ("PATCH", "/3", {"note": "n"}),
    ("PATCH", "/3", {"author": 1, "title": "bad"}),
    ("PATCH", "/99", {"title": "nobody"}),
    ("PATCH", "/99", {"title": "bad"}),
    ("PATCH", "/2", {"title": "bad"}),
    ("PATCH", "/1?fields=id,author.name", {"author": 2}),
    ("DELETE", "/1", None),
    ("DELETE", "/2", None),
    ("DELETE", "/3", None),
    ("DELETE", "/99", None),
)


@contextmanager
def in_transactions() -> Iterator[None]:
    """Have every write take a transaction."""
    with pytest.MonkeyPatch.context() as patch:
        for name in ("insert", "update", "delete"):
            patch.setattr(single_statement, name, lambda *_: None)
        yield


def comparable(answer: Answer) -> object:
    return answer.status, answer.text


@pytest.mark.release
@pytest.mark.parametrize("named", RIGHTS)
def test_one_statement_comes_to_the_same_as_a_transaction(tables: RuledTables, named: str) -> None:
    caller = member(
        tables.stage,
        *RIGHTS[named](tables.posts.name),
        may(tables.people.name),
        may(tables.notes.name),
    )
    for method, path, payload in CALLS:
        outcomes = []
        for mode in (in_transactions, nullcontext):
            tables.fresh()
            before = tables.state()
            with mode():
                answer = caller.send(method, tables.posts.path + path, payload)
            after = tables.state()
            assert answer.status < 400 or after == before, "what is refused leaves nothing"
            outcomes.append((comparable(answer), after))
        assert outcomes[0] == outcomes[1], (method, path, payload)


ALONE = (
    "a field",
    "a field, and reads nothing of it",
    "a field, and reads some fields",
    "a preset",
    "null",
)


@pytest.mark.parametrize("named", ALONE)
def test_single_writes_under_rules_are_one_statement(
    tables: RuledTables, named: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    caller = member(tables.stage, *RIGHTS[named](tables.posts.name))
    path = tables.posts.path
    tables.fresh()
    with counted_in_transactions(monkeypatch) as seen:
        assert caller.post(
            path, {"title": "new", "status": "draft", "author": 1, "note": "m"}
        ).status in (200, 204)
        assert caller.patch(f"{path}/1", {"title": "A"}).status in (200, 204, 403, 404)
    assert seen == []


def test_the_deletion_of_what_nothing_points_to_is_one_statement(
    tables: RuledTables, monkeypatch: pytest.MonkeyPatch
) -> None:
    rule = {"text": {"_neq": "kept"}}
    caller = member(
        tables.stage,
        may(tables.notes.name),
        may(tables.notes.name, action="delete", permissions=rule),
    )
    tables.fresh()
    with counted_in_transactions(monkeypatch) as seen:
        assert caller.delete(f"{tables.notes.path}/1").status == 204
    assert seen == []


def test_a_row_that_changes_while_a_write_waits_for_it_is_looked_at_again(
    tables: RuledTables,
) -> None:
    caller = member(tables.stage, *RIGHTS["a field, and reads another"](tables.posts.name))
    for method, payload in (("PATCH", {"title": "new"}), ("DELETE", None)):
        for change, status in (
            ("status = 'live'", 403),
            ("title = 'z', status = 'live'", 404),
            ("note = 'n'", 200),
        ):
            tables.fresh()
            with psycopg.connect(tables.stage.dsn) as other, ThreadPoolExecutor(1) as thread:
                other.execute(f'UPDATE "{tables.posts.name}" SET {change} WHERE id = 1'.encode())
                waiting = thread.submit(caller.send, method, f"{tables.posts.path}/1", payload)
                while not tables.stage.value(WAITING):
                    assert not waiting.done(), waiting.result().text
                other.commit()
                answer: Any = waiting.result()
            expected = 204 if method == "DELETE" and status == 200 else status
            assert answer.status == expected, (method, change, answer.text)


def test_no_answer_names_the_rule_that_refuses(tables: RuledTables) -> None:
    tables.fresh()
    caller = member(tables.stage, *RIGHTS["a field"](tables.posts.name))
    answer = caller.post(tables.posts.path, {"title": "x", "status": "live"})
    assert (answer.status, answer.codes) == (403, ["FORBIDDEN"])
    assert answer.text == caller.get("/items/nowhere").text


def both(
    tables: RuledTables, caller: Client, *call: Any, fresh: Callable[[], object]
) -> tuple[Answer, Answer]:
    """Do a call on fresh rows in a transaction, and on fresh rows as it comes."""
    fresh()
    with in_transactions():
        model = caller.send(*call)
    fresh()
    return model, caller.send(*call)


def test_keys_that_the_database_carries_on_are_carried_on_before_the_rule_is_tried(
    tables: RuledTables,
) -> None:
    tables.stage.execute(
        """
        CREATE TABLE parts (id integer PRIMARY KEY, code text UNIQUE);
        CREATE TABLE pieces (id integer PRIMARY KEY,
            part text REFERENCES parts (code) ON UPDATE CASCADE);
        """
    )
    relation = {
        "collection": "pieces",
        "field": "part",
        "related_collection": "parts",
        "meta": {"one_field": "pieces"},
    }
    assert tables.stage.admin.post("/relations", relation).status == 200
    rule = {"_or": [{"code": {"_eq": "a"}}, {"pieces": {"_none": {"id": {"_gt": 0}}}}]}
    caller = member(tables.stage, *with_rule(rule)("parts"), may("pieces"))

    def fresh() -> None:
        tables.connection.execute("DELETE FROM pieces; DELETE FROM parts")
        tables.connection.execute(
            "INSERT INTO parts VALUES (1, 'a'); INSERT INTO pieces VALUES (1, 'a')"
        )

    model, actual = both(tables, caller, "PATCH", "/items/parts/1", {"code": "b"}, fresh=fresh)
    assert (actual.status, model.status) == (403, 403)
    path = "/items/parts/1?fields=code,pieces.part"
    model, actual = both(tables, tables.stage.admin, "PATCH", path, {"code": "b"}, fresh=fresh)
    assert actual.data == model.data == {"code": "b", "pieces": [{"part": "b"}]}


def test_rows_that_another_table_shows_as_well_are_seen_as_they_have_become(
    tables: RuledTables,
) -> None:
    tables.stage.execute(
        """
        CREATE TABLE things_of_all_kinds (id integer PRIMARY KEY, state text);
        CREATE TABLE special_things (PRIMARY KEY (id),
            itself integer) INHERITS (things_of_all_kinds);
        """
    )
    relation = {
        "collection": "special_things",
        "field": "itself",
        "related_collection": "things_of_all_kinds",
    }
    assert tables.stage.admin.post("/relations", relation).status == 200
    tables.stage.execute("ALTER TABLE special_things DROP CONSTRAINT special_things_itself_fkey")
    caller = member(
        tables.stage, *with_rule({"itself": {"state": {"_eq": "ok"}}})("special_things")
    )

    def fresh() -> None:
        tables.connection.execute("DELETE FROM special_things")

    sent = {"id": 1, "state": "ok", "itself": 1}
    model, actual = both(tables, caller, "POST", "/items/special_things", sent, fresh=fresh)
    assert comparable(actual) == comparable(model)
    assert actual.status == 200


def test_a_change_that_has_waited_sees_other_tables_as_they_are_by_then(
    tables: RuledTables,
) -> None:
    rule = {"notes": {"_none": {"text": {"_eq": "hold"}}}}
    caller = member(tables.stage, *with_rule(rule)(tables.posts.name))
    tables.fresh()
    with psycopg.connect(tables.stage.dsn) as other, ThreadPoolExecutor(1) as thread:
        other.execute(f"UPDATE {tables.posts.name} SET note = 'n' WHERE id = 1".encode())
        other.execute(
            f"INSERT INTO {tables.notes.name} (id, text, post) VALUES (9, 'hold', 1)".encode()
        )
        waiting = thread.submit(caller.patch, f"{tables.posts.path}/1", {"title": "mine"})
        while not tables.stage.value(WAITING):
            assert not waiting.done(), waiting.result().text
        other.commit()
        assert waiting.result().status == 403
    assert tables.stage.value(f"SELECT title FROM {tables.posts.name} WHERE id = 1") == "a"


@pytest.mark.parametrize("keys", [[1], [1, 3]])
def test_a_deletion_that_has_waited_sees_other_tables_as_they_are_by_then(
    tables: RuledTables, keys: list[int]
) -> None:
    posts = tables.posts.name
    rule = {"author": {"rank": {"_in": [1, 2]}}}
    caller = member(tables.stage, may(posts), may(posts, action="delete", permissions=rule))
    tables.fresh()
    with psycopg.connect(tables.stage.dsn) as other, ThreadPoolExecutor(1) as thread:
        other.execute(f"UPDATE {tables.people.name} SET rank = 3".encode())
        other.execute(f"UPDATE {posts} SET note = 'n' WHERE id = 1".encode())
        waiting = thread.submit(caller.send, "DELETE", tables.posts.path, keys)
        while not tables.stage.value(WAITING):
            assert not waiting.done(), waiting.result().text
        other.commit()
        assert waiting.result().status == 403
    assert tables.stage.value(f"SELECT count(*) FROM {posts}") == 3


def test_a_trigger_that_keeps_a_row_is_reported_as_before(tables: RuledTables) -> None:
    tables.stage.execute(
        """
        CREATE TABLE kept (id integer PRIMARY KEY, state text);
        CREATE FUNCTION keep() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END';
        CREATE TRIGGER keep BEFORE DELETE ON kept FOR EACH ROW EXECUTE FUNCTION keep();
        INSERT INTO kept VALUES (1, 'draft');
        """
    )
    caller = member(tables.stage, *with_rule({"state": {"_eq": "draft"}})("kept"))
    model, actual = both(tables, caller, "DELETE", "/items/kept/1", fresh=lambda: None)
    assert comparable(actual) == comparable(model)
