"""What one process changes is honoured by the next request of every other."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import psycopg
import pytest

from cms.auth import accounts
from cms.config import Config
from cms.database.connections import Transaction
from cms.database.reader import Reader
from cms.database.statements import statement
from tests.active_flows import make_flow, runs, step
from tests.client import ADMIN_EMAIL, ADMIN_PASSWORD, Answer, Client, with_other_status
from tests.statements import counted

TABLE = {"collection": "things", "schema": {}, "fields": [{"field": "name", "type": "string"}]}


@pytest.fixture
def other(make_client: Callable[..., Client], admin_token: str) -> Client:
    """The administrator's client of a second process."""
    return make_client().bearing(admin_token)


def test_a_process_that_missed_a_collection_sees_it_when_it_is_made(
    api: Client, other: Client
) -> None:
    assert other.get("/items/things").status == 404
    api.post("/collections", TABLE)
    assert other.get("/items/things").data == []
    assert other.get("/collections/things").status == 200


def test_a_new_field_is_shown_and_a_dropped_one_is_not(api: Client, other: Client) -> None:
    api.post("/collections", TABLE)
    api.post("/items/things", {"name": "a"})
    assert other.get("/items/things").data == [{"id": 1, "name": "a"}]
    api.post("/fields/things", {"field": "size", "type": "integer"})
    assert other.get("/items/things").data == [{"id": 1, "name": "a", "size": None}]
    api.delete("/fields/things/name")
    assert other.get("/items/things").data == [{"id": 1, "size": None}]
    assert other.get("/items/things?fields=name").status == 400


def test_a_write_is_made_under_the_structure_of_its_moment(api: Client, other: Client) -> None:
    api.post("/collections", TABLE)
    assert other.post("/items/things", {"name": "a"}).status == 200
    api.patch("/fields/things/name", {"field": "title"})
    assert other.post("/items/things", {"title": "b"}).status == 200
    assert other.post("/items/things", {"name": "c"}).codes == ["INVALID_PAYLOAD"]


@pytest.mark.release
def test_a_dropped_collection_is_gone_everywhere(api: Client, other: Client) -> None:
    api.post("/collections", TABLE)
    assert other.get("/items/things").status == 200
    api.delete("/collections/things")
    assert other.get("/items/things").status == 404
    assert other.post("/items/things", {"name": "a"}).status == 404


def test_a_suspended_user_is_stopped_at_the_next_request(other: Client, dsn: str) -> None:
    assert other.get("/activity").status == 200
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute("UPDATE system_users SET status = 'suspended'")
    answer = other.get("/activity")
    assert (answer.status, answer.codes) == (401, ["INVALID_TOKEN"])


def test_a_role_that_loses_its_rights_loses_them_at_the_next_request(
    other: Client, dsn: str
) -> None:
    assert other.get("/activity").status == 200
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute("UPDATE system_roles SET admin_access = FALSE, app_access = FALSE")
    assert other.get("/activity").status == 403
    assert other.get("/collections").status == 403


EXPLAINED = "/permissions/explain?user=public&collection=things&action=read"


@pytest.mark.release
@pytest.mark.parametrize(
    "path", ["/utils/explain?path=/items/things", EXPLAINED, "/server/health", "/server/info"]
)
def test_who_is_no_administrator_any_more_gets_no_answers_for_administrators(
    api: Client, other: Client, dsn: str, path: str
) -> None:
    api.post("/collections", TABLE)
    before = other.get(path)
    assert before.status == 200
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute("UPDATE system_roles SET admin_access = FALSE, app_access = FALSE")
    after = other.get(path)
    assert after.status == 403 or after.body["data"].keys() < before.body["data"].keys()


@pytest.mark.release
def test_the_structure_is_explained_as_it_is_now(api: Client, other: Client) -> None:
    api.post("/collections", TABLE)
    assert other.get(EXPLAINED).data == []
    api.delete("/collections/things")
    assert other.get(EXPLAINED).status == 400


def test_a_right_that_is_given_is_there_at_the_next_request(anonymous: Client, dsn: str) -> None:
    accounts.create_user(dsn, email="ann@example.com", password="secret-of-ann", role=None)
    ann = anonymous.login("ann@example.com", "secret-of-ann")
    assert ann.get("/collections").status == 403
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute("UPDATE system_users SET role = (SELECT id FROM system_roles LIMIT 1)")
    assert ann.get("/collections").status == 200


def test_a_login_moves_no_counter_so_that_nobody_loads_anything_for_it(
    api: Client, dsn: str
) -> None:
    def counters() -> object:
        with psycopg.connect(dsn) as connection:
            return connection.execute("SELECT structure, access FROM system_version").fetchone()

    before = counters()
    api.login(ADMIN_EMAIL, ADMIN_PASSWORD)
    assert counters() == before


def test_a_statement_that_fails_on_a_dropped_column_reloads_the_structure(
    api: Client, config: Config, dsn: str
) -> None:
    api.post("/collections", TABLE)
    assert api.get("/items/things").data == []
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute("ALTER TABLE things DROP COLUMN name")
        connection.execute("INSERT INTO things DEFAULT VALUES")
    assert api.get("/items/things").data == [{"id": 1}]


@pytest.mark.release
def test_a_process_goes_on_with_the_structure_that_its_own_change_has_left(
    api: Client, other: Client
) -> None:
    api.post("/collections", TABLE)
    left = api.app.store.snapshots.loaded
    assert left is not None
    assert "things" in left.catalogue.collections
    assert api.get("/items/things").data == []
    assert api.app.store.snapshots.loaded is left
    other.post("/fields/things", {"field": "more", "type": "string"})
    assert api.post("/items/things", {"more": "x"}).data["more"] == "x"


@pytest.mark.release
def test_a_change_of_structure_loads_the_structure_once(
    api: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    api.get("/collections")
    author = {"field": "author", "type": "integer"}
    relation = {"collection": "things", "field": "author", "related_collection": "system_users"}
    changes: list[tuple[str, str, object]] = [
        ("POST", "/collections", TABLE),
        ("POST", "/fields/things", {"field": "more", "type": "string"}),
        ("PATCH", "/fields/things/more", {"schema": {"max_length": 20}}),
        ("POST", "/fields/things", {**author, "type": "uuid"}),
        ("POST", "/relations", relation),
        ("PATCH", "/collections/things", {"meta": {"searchable": False}}),
        ("DELETE", "/fields/things/more", None),
        ("DELETE", "/collections/things", None),
    ]
    for method, path, payload in changes:
        with counted(monkeypatch) as statements:
            assert api.send(method, path, payload).status in (200, 204), path
        assert statements.count(statement("load_catalogue")) == 1, (method, path)


def test_a_change_of_structure_that_is_refused_leaves_the_structure_of_before(api: Client) -> None:
    api.post("/collections", TABLE)
    before = api.app.store.snapshots.loaded
    fields = [{"field": "one", "type": "string"}, {"field": "name", "type": "string"}]
    assert api.post("/collections", {**TABLE, "fields": fields}).status == 400
    assert api.post("/fields/things", {"field": "name", "type": "string"}).status == 400
    assert api.app.store.snapshots.loaded is before


@pytest.mark.release
def test_a_change_of_structure_leaves_the_callers_whose_rights_are_the_same(
    api: Client, other: Client, dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    api.post("/collections", TABLE)
    role = api.post("/roles", {"name": "Members"}).data["id"]
    token = "token-of-a-member"
    user = {"email": "member@example.com", "role": role, "token": token}
    assert api.post("/users", user).status == 200
    grant = {"role": role, "collection": "things", "action": "read", "fields": ["*"]}
    permission = api.post("/permissions", grant).data["id"]
    member = other.bearing(token)
    assert member.get("/items/things").status == 200
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute("ALTER TABLE things ADD COLUMN more text")
        connection.execute("INSERT INTO things (name) VALUES ('a')")
    assert api.post("/utils/cache/clear").status == 204
    with counted(monkeypatch) as statements:
        assert member.get("/items/things").data == [{"id": 1, "name": "a", "more": None}]
    assert statement("load_catalogue") in statements
    assert statement("find_actor") not in statements
    api.patch(f"/permissions/{permission}", {"fields": ["id"]})
    api.post("/fields/things", {"field": "another", "type": "string"})
    assert member.get("/items/things").data == [{"id": 1}]
    api.delete(f"/permissions/{permission}")
    assert member.get("/items/things").status == 403


@pytest.mark.release
def test_a_change_of_structure_leaves_no_statement_of_the_one_before(
    make_client: Callable[..., Client], admin_token: str
) -> None:
    """Each holds a plan in the server's memory, on every connection of every process."""
    client = make_client(database_pool_size=1).bearing(admin_token)
    client.post("/collections", TABLE)
    for number in range(10):
        client.post("/fields/things", {"field": f"f{number}", "type": "string"})
        assert client.get("/items/things").status == client.post("/items/things", {}).status == 200
        client.delete(f"/fields/things/f{number}")
    assert client.get("/items/things").status == client.post("/items/things", {}).status == 200
    database = client.app.store.database
    for fetch in (database.fetch, database.fetch_primary):
        statements = [text for (text,) in fetch("SELECT statement FROM pg_prepared_statements")]
        assert len(statements) < 10
        assert not any('"f1"' in text for text in statements)


MOVE_RIGHTS = """
    UPDATE system_version SET access = access + 1
    WHERE id IN (SELECT id FROM system_version FOR NO KEY UPDATE SKIP LOCKED)
"""

CHANGES_OF_RIGHTS: dict[str, Callable[[Client, str, int], Answer]] = {
    "settings": lambda api, user, number: api.patch(
        "/settings", {"project_name": f"Project {number}"}
    ),
    "roles": lambda api, user, number: api.post("/roles", {"name": f"Role {number}"}),
    "permissions": lambda api, user, number: api.post(
        "/permissions", {"collection": "things", "action": "read", "fields": ["id"]}
    ),
    "a user": lambda api, user, number: api.patch(
        f"/users/{user}", {"status": "active" if number % 2 else "draft"}
    ),
    "users by key": lambda api, user, number: api.patch(
        "/users", {"keys": [user], "data": {"email": f"{number}@example.com"}}
    ),
    "users one by one": lambda api, user, number: api.patch(
        "/users", [{"id": user, "status": "active" if number % 2 else "draft"}]
    ),
    "the end of a user": lambda api, user, number: api.delete(
        "/users", {"query": {"filter": {"title": str(number)}}}
    ),
}


@pytest.mark.release
@pytest.mark.parametrize("named", CHANGES_OF_RIGHTS)
def test_changes_of_rights_at_once_take_turns(
    api: Client, other: Client, named: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    api.post("/collections", TABLE)
    users = [{"email": f"{number}@here.example", "title": str(number)} for number in range(24)]
    user = api.post("/users", users).data[-1]["id"]
    deadlocks: list[str] = []
    execute = Transaction.execute

    def spy(transaction: Transaction, text: str, values: Sequence[object] = (), **more: Any) -> Any:
        if text == statement("wait_for_others"):
            deadlocks.append(text)
        return execute(transaction, text, values, **more)

    monkeypatch.setattr(Transaction, "execute", spy)
    with ThreadPoolExecutor(6) as threads:
        calls = [
            threads.submit(CHANGES_OF_RIGHTS[named], other if number % 2 else api, user, number)
            for number in range(24)
        ]
    assert with_other_status((call.result() for call in calls), 200, 204) == []
    assert not deadlocks


@contextmanager
def moving_rights(dsn: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """Change rights before every statement of a reader; yield a number for each change."""
    fetch = Reader.fetch
    moves: list[int] = []
    with psycopg.connect(dsn, autocommit=True) as connection:

        def spy(reader: Reader, text: str, *values: Any, **more: Any) -> Any:
            moves.append(connection.execute(MOVE_RIGHTS).rowcount)
            return fetch(reader, text, *values, **more)

        with monkeypatch.context() as patch:
            patch.setattr(Reader, "fetch", spy)
            yield moves


@pytest.mark.release
def test_a_read_is_answered_however_often_rights_change_meanwhile(
    api: Client, dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    api.post("/collections", TABLE)
    api.post("/items/things", {"name": "a"})
    with moving_rights(dsn, monkeypatch) as moves:
        for path in (
            "/items/things?fields=name",
            "/items/things/1",
            "/collections/things",
            "/permissions/me",
        ):
            moves.clear()
            assert (api.get(path).status, path) == (200, path)
            assert len(moves) >= 5, path


def test_a_read_before_a_write_needs_one_connection_however_often_rights_change(
    make_client: Callable[..., Client], admin_token: str, dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = make_client(database_pool_size=1).bearing(admin_token)
    with moving_rights(dsn, monkeypatch) as moves:
        assert client.post("/collections", TABLE).status == 200
    assert len(moves) >= 5


@pytest.mark.release
def test_a_changed_flow_is_in_force_with_the_next_call_and_event_of_every_process(
    api: Client, other: Client
) -> None:
    api.post("/collections", TABLE)
    called = make_flow(api, "webhook", {}, [step("one", "transform", {"json": 1})])
    options = {"type": "filter", "scope": ["items.create"], "collections": ["things"]}
    steps = [step("name", "transform", {"json": {"name": "filtered"}})]
    assert other.get(f"/flows/trigger/{called}").data == 1
    assert other.post("/items/things", {"name": "a"}).data["name"] == "a"
    waiting = make_flow(api, "event", options, steps)
    assert other.post("/items/things", {"name": "a"}).data["name"] == "filtered"
    operation = api.get(f"/flows/{called}").data["operation"]
    assert api.patch(f"/operations/{operation}", {"options": {"json": 2}}).status == 200
    assert other.get(f"/flows/trigger/{called}").data == 2
    assert api.delete(f"/flows/{waiting}").status == 204
    assert other.post("/items/things", {"name": "a"}).data["name"] == "a"
    queued = {"type": "action", "scope": ["items.create"]}
    action = make_flow(api, "event", queued, [])
    assert other.post("/items/things", {"name": "a"}).status == 200
    assert len(runs(api, action)) == 1


def test_a_changed_flow_loads_neither_structure_nor_rights(api: Client) -> None:
    api.post("/collections", TABLE)
    assert api.get("/items/things").status == 200
    before = api.app.store.snapshots.current()
    make_flow(api, "webhook", {}, [])
    assert api.get("/items/things").status == 200
    after = api.app.store.snapshots.current()
    assert after.version.flows > before.version.flows
    assert after.catalogue is before.catalogue
    assert after.actors is before.actors
