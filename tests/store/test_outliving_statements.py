"""A change leaves the statements, views and callers that it does not concern; no others."""

from __future__ import annotations

import gc
import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from uuid import uuid4

import psycopg
import pytest

from cms.access.policy import Policy
from cms.access.recorded_lookups import RecordingCatalogue
from cms.hashing.passwords import digest
from cms.schema.model import Catalogue, Collection
from tests.client import Client
from tests.store.test_outliving_changes import count_made

TOKEN = "member-" * 6
ROLE = str(uuid4())
OTHER_ROLE = str(uuid4())

Json = dict[str, Any]


TABLES = """
CREATE TABLE authors (id serial PRIMARY KEY, name text, flag boolean, size integer);
CREATE TABLE cats (LIKE authors INCLUDING ALL);
CREATE TABLE books (
    id serial PRIMARY KEY, name text, flag boolean, size integer, author integer REFERENCES authors
);
INSERT INTO authors (name, flag, size) VALUES ('One', TRUE, 1);
INSERT INTO cats (name, flag, size) VALUES ('One', TRUE, 1);
INSERT INTO books (name, flag, size, author) VALUES ('One', TRUE, 1, 1);
INSERT INTO system_relations (many_collection, many_field, one_collection)
VALUES ('books', 'author', 'authors');
"""


@pytest.fixture
def member(api: Client, connection: psycopg.Connection[Any]) -> Client:
    """A member whose role may read three collections; authors have books, and cats stand alone."""
    connection.execute(TABLES.encode())
    for role in (ROLE, OTHER_ROLE):
        connection.execute(b"INSERT INTO system_roles (id, name) VALUES (%s, %s)", (role, role))
    connection.execute(
        b"INSERT INTO system_users (email, role, token) VALUES ('member@example.com', %s, %s)",
        (ROLE, digest(TOKEN)),
    )
    for name in ("authors", "books", "cats"):
        permit(connection, name, {"size": {"_eq": 1}})
    return api.bearing(TOKEN)


def make_collection(api: Client, name: str) -> None:
    payload = {"collection": name, "schema": {}, "fields": [{"field": "name", "type": "string"}]}
    assert api.post("/collections", payload).status == 200


def permit(
    connection: psycopg.Connection[Any], collection: str, rule: object, *, role: str = ROLE
) -> None:
    """Let a role read a collection under this rule alone."""
    values = (json.dumps(rule), role, collection)
    changed = connection.execute(
        b"UPDATE system_permissions SET permissions = %s WHERE role = %s AND collection = %s",
        values,
    )
    if not changed.rowcount:
        connection.execute(
            b"INSERT INTO system_permissions (permissions, role, collection, action, fields) "
            b"VALUES (%s, %s, %s, 'read', '[\"*\"]')",
            values,
        )


def policy_of_member(member: Client) -> Policy:
    """Return the policy that the member's last request was answered under."""
    actors = member.app.store.snapshots.current().actors.values()
    (actor,) = (actor for actor in actors if actor.role == ROLE)
    return actor.policy


QUERIES = {
    "authors": "/items/authors?fields=*,*.*",
    "author": "/items/authors/1",
    "books": "/items/books?fields=id,author.name",
    "cats": "/items/cats?fields=*.*&filter[name]=One",
    "cat": "/items/cats/1",
}


@pytest.fixture
def made_after(monkeypatch: pytest.MonkeyPatch) -> Callable[..., set[str]]:
    """Returns what reads have their statements made anew after a change."""
    made = count_made(monkeypatch)

    def made_after(client: Client, change: Callable[[], object]) -> set[str]:
        for path in QUERIES.values():
            client.get(path)
        change()
        # What is found out here is which statements stay, and not what they answer.
        client.get("/server/info")
        names = set()
        for name, path in QUERIES.items():
            before = len(made)
            client.get(path)
            if len(made) > before:
                names.add(name)
        return names

    return made_after


CATS = {"cats", "cat"}
LIBRARY = {"authors", "author", "books"}


def test_a_change_of_one_collection_leaves_what_reads_others(
    api: Client, member: Client, made_after: Callable[..., set[str]]
) -> None:
    for client in (api, member):
        field = {"field": f"more{client is api}", "type": "string"}
        assert made_after(client, lambda: api.post("/fields/cats", field)) == CATS  # noqa: B023


def test_a_new_collection_makes_nothing_anew(
    api: Client, member: Client, made_after: Callable[..., set[str]]
) -> None:
    assert made_after(member, lambda: make_collection(api, "dogs")) == set()


def test_a_change_of_a_related_collection_makes_anew_what_leads_to_it(
    api: Client, member: Client, made_after: Callable[..., set[str]]
) -> None:
    field = {"field": "born", "type": "integer"}
    changed = made_after(member, lambda: api.post("/fields/authors", field))
    assert changed == LIBRARY
    assert member.get(QUERIES["authors"]).data[0]["born"] is None


def test_a_list_that_appears_on_the_other_side_is_shown(
    api: Client, member: Client, made_after: Callable[..., set[str]]
) -> None:
    def add_list() -> None:
        field = {"field": "books", "type": "alias", "meta": {"special": ["o2m"]}}
        assert api.post("/fields/authors", field).status == 200
        meta = {"meta": {"one_field": "books"}}
        assert api.patch("/relations/books/author", meta).status == 200

    assert made_after(member, add_list) == LIBRARY
    assert member.get("/items/authors?fields=books.name").data == [{"books": [{"name": "One"}]}]


def test_a_relation_alone_may_change(member: Client, connection: psycopg.Connection[Any]) -> None:
    """Its record is part of neither collection."""
    connection.execute(
        b"INSERT INTO system_fields (collection, field, special) "
        b"VALUES ('authors', 'books', '{o2m}')"
    )
    to_one = "/items/books?fields=author.name"
    to_many = "/items/authors?fields=books.name"
    for _ in range(2):
        assert member.get(to_one).data == [{"author": {"name": "One"}}]
        assert member.get(to_many).status == 403
        connection.execute(b"UPDATE system_relations SET one_field = 'books'")
        assert member.get(to_many).data == [{"books": [{"name": "One"}]}]
        connection.execute(b"UPDATE system_relations SET one_field = NULL")


def test_a_rule_is_made_anew_with_a_collection_that_it_names(
    api: Client,
    member: Client,
    connection: psycopg.Connection[Any],
    made_after: Callable[..., set[str]],
) -> None:
    permit(connection, "books", {"author": {"size": {"_gte": 1}}})
    change = {"type": "bigInteger", "schema": {"data_type": "bigint"}}
    books = "/items/books?fields=id"
    assert member.get(books).data == [{"id": 1}]
    changed = made_after(member, lambda: api.patch("/fields/authors/size", change))
    assert changed == LIBRARY
    assert member.get(books).data == [{"id": 1}]
    connection.execute(b"ALTER TABLE authors RENAME COLUMN size TO length")
    assert api.post("/utils/cache/clear").status < 300
    # The rule names a field that is gone, and so shows nothing.
    assert member.get(books).status == 403


@pytest.mark.quick(1)
@pytest.mark.parametrize(
    ("rule", "size"), [({"size": {"_gt": 1}}, 0), ({"size": {"_eq": 1.0}}, 1), (None, 1)]
)
def test_a_change_of_a_permission_makes_anew_what_its_role_reads(
    member: Client,
    connection: psycopg.Connection[Any],
    made_after: Callable[..., set[str]],
    rule: object,
    size: int,
) -> None:
    """All that the role reads: the name of its policy is another one."""
    assert made_after(member, lambda: permit(connection, "cats", rule)) == set(QUERIES)
    assert len(member.get("/items/cats").data) == size
    assert made_after(member, lambda: None) == set()


def test_rules_that_python_takes_for_equal_are_not(
    member: Client, connection: psycopg.Connection[Any]
) -> None:
    permit(connection, "cats", {"flag": {"_eq": True}})
    assert len(member.get("/items/cats").data) == 1
    permit(connection, "cats", {"size": {"_in": [1, True]}})
    assert member.get("/items/cats").status == 403
    permit(connection, "cats", {"size": {"_in": [1, 1]}})
    assert len(member.get("/items/cats").data) == 1


def test_a_permission_of_another_role_makes_nothing_anew(
    member: Client, connection: psycopg.Connection[Any], made_after: Callable[..., set[str]]
) -> None:
    def change() -> None:
        permit(connection, "cats", {"size": {"_eq": 2}}, role=OTHER_ROLE)

    assert made_after(member, change) == set()
    policy = policy_of_member(member)
    assert made_after(member, change) == set()
    assert policy_of_member(member) is policy


def test_rights_that_are_as_before_are_known_again(
    member: Client, connection: psycopg.Connection[Any], made_after: Callable[..., set[str]]
) -> None:
    def change() -> None:
        for size in (2, 1):
            permit(connection, "cats", {"size": {"_eq": size}})
            assert len(member.get("/items/cats").data) == 2 - size

    assert made_after(member, change) == set()


def test_a_role_above_that_comes_and_goes_counts_at_once(
    member: Client, connection: psycopg.Connection[Any]
) -> None:
    permit(connection, "cats", {"size": {"_eq": 2}})
    assert member.get("/items/cats").data == []
    permit(connection, "cats", None, role=OTHER_ROLE)
    for parent, count in ((OTHER_ROLE, 1), (None, 0), (OTHER_ROLE, 1)):
        connection.execute(b"UPDATE system_roles SET parent = %s WHERE id = %s", (parent, ROLE))
        assert len(member.get("/items/cats").data) == count


def test_several_changes_of_rights_and_structure_are_known_together(
    api: Client,
    member: Client,
    connection: psycopg.Connection[Any],
    made_after: Callable[..., set[str]],
) -> None:
    def change() -> None:
        for number in range(3):
            api.post("/fields/cats", {"field": f"more{number}", "type": "string"})
            permit(connection, "cats", {"size": {"_lt": number}})
            assert member.get("/items/cats?fields=id").status == 200

    assert made_after(member, change) == set(QUERIES)


def test_a_field_that_is_renamed_is_gone_under_its_old_name(
    api: Client, member: Client, made_after: Callable[..., set[str]]
) -> None:
    assert member.get("/items/cats?fields=name").data == [{"name": "One"}]
    assert made_after(member, lambda: api.patch("/fields/cats/name", {"field": "title"})) <= CATS
    assert member.get("/items/cats?fields=name").status == 403
    assert member.get("/items/cats?fields=title").data == [{"title": "One"}]


def test_a_collection_that_is_dropped_and_made_again_is_another(
    api: Client,
    member: Client,
    connection: psycopg.Connection[Any],
    made_after: Callable[..., set[str]],
) -> None:
    def change() -> None:
        assert api.delete("/collections/cats").status == 204
        fields = [{"field": "colour", "type": "string"}]
        payload = {"collection": "cats", "schema": {}, "fields": fields}
        assert api.post("/collections", payload).status == 200
        api.post("/items/cats", {"colour": "red"})
        permit(connection, "cats", None)

    # What still can be asked is made anew, as the permission is another one.
    assert made_after(member, change) == set(QUERIES) - {"cats"}
    assert member.get("/items/cats").data == [{"id": 1, "colour": "red"}]
    assert member.get("/items/cats?fields=*.*&filter[name]=One").status == 403


def test_a_collection_that_was_missing_is_read_once_it_is_made(
    api: Client, member: Client, connection: psycopg.Connection[Any]
) -> None:
    permit(connection, "dogs", None)
    for client, missing in ((api, 404), (member, 403)):
        assert client.get("/items/dogs").status == missing
    connection.execute(b"CREATE TABLE dogs (id integer PRIMARY KEY)")
    assert api.post("/utils/cache/clear").status < 300
    assert api.get("/items/dogs").data == []
    assert member.get("/items/dogs").data == []


def test_a_change_of_structure_leaves_a_process_without_what_was_before(
    api: Client, member: Client
) -> None:
    for client in (api, member):
        for path in QUERIES.values():
            client.get(path)
    current = api.app.store.snapshots.current
    catalogue = current().catalogue
    assert api.post("/fields/cats", {"field": "more", "type": "string"}).status == 200
    for client in (api, member):
        assert client.get("/items/books").status == 200
    assert current().catalogue is not catalogue
    kept = current().catalogue
    old = id(catalogue)
    cats = id(catalogue.collections["cats"])
    del catalogue
    gc.collect()
    # By type(): isinstance() would ask other packages' lazy objects, and wake them.
    alive = gc.get_objects()
    catalogues = [thing for thing in alive if issubclass(type(thing), Catalogue)]
    assert old not in {id(thing) for thing in catalogues if thing is not kept}
    assert not [thing for thing in catalogues if type(thing) is RecordingCatalogue]
    collections = [thing for thing in alive if type(thing) is Collection]
    assert cats not in {id(thing) for thing in collections if "more" not in thing.fields}


def test_prepared_statements_of_other_collections_stay(
    api: Client, member: Client, connection: psycopg.Connection[Any]
) -> None:
    database = api.app.store.database

    def prepared() -> dict[str, object]:
        rows = database.fetch("SELECT statement, prepare_time::text FROM pg_prepared_statements")
        return dict(rows)

    for path in (QUERIES["cats"], QUERIES["books"]):
        assert member.get(path).status == 200
    before = prepared()
    assert api.post("/fields/cats", {"field": "more", "type": "string"}).status == 200
    for path in (QUERIES["cats"], QUERIES["books"]):
        assert member.get(path).status == 200
    after = prepared()
    books = {text for text in before if '"books"' in text and '"author' in text}
    cats = {text for text in before if 'FROM "cats"' in text}
    assert books
    assert cats
    assert all(after.get(text) == before[text] for text in books)
    assert not any(text in after for text in cats)


@pytest.mark.release
def test_rights_that_change_all_the_time_are_those_of_every_answer(
    api: Client,
    member: Client,
    connection: psycopg.Connection[Any],
    make_client: Callable[..., Client],
) -> None:
    clients = [member, make_client().bearing(TOKEN)]

    def read(client: Client) -> tuple[int, int]:
        answers = [client.get(path) for path in (QUERIES["cats"], QUERIES["books"])]
        return tuple(len(answer.data) for answer in answers)  # type: ignore[return-value]

    with ThreadPoolExecutor(6) as pool:
        for number in range(20):
            running = [pool.submit(read, client) for client in clients * 4]
            permit(connection, "cats", {"size": {"_eq": number % 2}})
            if number % 3 == 0:
                api.post("/fields/authors", {"field": f"more{number}", "type": "string"})
            # Whoever asks now is answered by what has been committed, whatever still runs.
            later = [pool.submit(read, client) for client in clients * 4]
            assert {one.result() for one in later} == {(number % 2, 1)}
            assert {books for _, books in (one.result() for one in running)} == {1}
