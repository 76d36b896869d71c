"""Four processes over one database: what one changes, the next request of every other honours."""

from __future__ import annotations

import multiprocessing as mp
import os
from base64 import b64encode
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection
from typing import Any

import psycopg
import pytest

from cms.app import create_app
from cms.config import Config
from cms.store import snapshot
from tests.client import Answer, Client
from tests.files.images import picture
from tests.people import of_user, person
from tests.things import Stage, admin_token

PROCESSES = 4
ROUNDS = int(os.environ.get("CMS_FRESHNESS_ROUNDS", "30"))  # .ci/run takes 60

pytestmark = [pytest.mark.slow, pytest.mark.release]


@dataclass(frozen=True)
class Process:
    """A process with an application of its own, asked over a pipe."""

    pipe: Connection

    def send(self, method: str, path: str, body: object = None) -> Answer:
        self.pipe.send((method, path, body, False))
        answer: Answer = self.pipe.recv()
        return answer


def serve(pipe: Connection, config: Config, token: str) -> None:
    public = Client(create_app(config))
    admin = public.bearing(token)
    while (request := pipe.recv()) is not None:
        method, path, body, anonymous = request
        pipe.send((public if anonymous else admin).send(method, path, body))


@contextmanager
def running(config: Config, token: str) -> Iterator[list[Process]]:
    context = mp.get_context("spawn")
    pairs = [context.Pipe() for _ in range(PROCESSES)]
    children = [context.Process(target=serve, args=(far, config, token)) for _, far in pairs]
    for child in children:
        child.start()
    try:
        yield [Process(near) for near, _ in pairs]
    finally:
        for near, _ in pairs:
            near.send(None)
        for child in children:
            child.join(30)


@pytest.fixture(scope="module")
def processes(stage: Stage, settings: Config) -> Iterator[list[Process]]:
    config = replace(settings, database_url=stage.dsn, database_pool_size=3)
    with running(config, admin_token(config, stage.dsn)) as processes:
        yield processes


def make(process: Process, name: str) -> None:
    fields = [{"field": "kept", "type": "string"}, {"field": "old", "type": "string"}]
    assert (
        process.send(
            "POST", "/collections", {"collection": name, "schema": {}, "fields": fields}
        ).status
        == 200
    )
    assert process.send("POST", f"/items/{name}", {"kept": "k", "old": "o"}).status == 200


def get(processes: list[Process], path: str, *, anonymous: bool) -> list[Answer]:
    """Ask every process, all at once, and return their answers."""
    for process in processes:
        process.pipe.send(("GET", path, None, anonymous))
    return [process.pipe.recv() for process in processes]


def items(processes: list[Process], path: str, *, anonymous: bool = False) -> list[Any]:
    return [answer.data for answer in get(processes, path, anonymous=anonymous)]


def statuses(processes: list[Process], path: str, *, anonymous: bool = False) -> set[int]:
    return {answer.status for answer in get(processes, path, anonymous=anonymous)}


def test_fields_and_tables_that_come_and_go_are_seen_by_the_next_request_of_every_process(
    processes: list[Process],
) -> None:
    make(processes[0], "things")
    before = {"id": 1, "kept": "k", "old": "o"}
    assert items(processes, "/items/things") == [[before]] * PROCESSES
    for number in range(ROUNDS):
        changer = processes[number % PROCESSES]
        make(changer, "tables")
        assert (
            changer.send("POST", "/fields/things", {"field": "new", "type": "integer"}).status
            == 200
        )
        assert items(processes, "/items/things") == [[{**before, "new": None}]] * PROCESSES
        assert items(processes, "/items/tables?fields=old") == [[{"old": "o"}]] * PROCESSES
        for path in ("/collections/tables", "/fields/things/new"):
            assert changer.send("DELETE", path).status == 204
        for path in ("/items/tables", "/items/things?fields=new")[:: 1 if number % 2 else -1]:
            expected = 404 if path == "/items/tables" else 400
            assert statuses(processes, path) == {expected}, path
        assert items(processes, "/items/things") == [[before]] * PROCESSES


def test_a_right_that_is_revoked_is_gone_for_every_process(
    processes: list[Process], stage: Stage
) -> None:
    with psycopg.connect(stage.dsn, autocommit=True) as connection:
        for _ in range(ROUNDS):
            connection.execute("UPDATE system_roles SET admin_access = FALSE")
            assert statuses(processes, "/activity") == {403}
            connection.execute("UPDATE system_roles SET admin_access = TRUE")
            assert statuses(processes, "/activity") == {200}


def test_a_permission_that_is_deleted_or_changed_is_so_for_every_process(
    processes: list[Process],
) -> None:
    make(processes[0], "shown")
    path = "/items/shown"
    permission = {"role": None, "collection": "shown", "action": "read"}
    assert statuses(processes, path, anonymous=True) == {403}
    for number in range(ROUNDS):
        changer = processes[number % PROCESSES]
        key = changer.send("POST", "/permissions", {**permission, "fields": ["kept"]}).data["id"]
        assert items(processes, path, anonymous=True) == [[{"kept": "k"}]] * PROCESSES
        assert changer.send("PATCH", f"/permissions/{key}", {"fields": ["old"]}).status == 200
        assert items(processes, path, anonymous=True) == [[{"old": "o"}]] * PROCESSES
        assert changer.send("DELETE", f"/permissions/{key}").status == 204
        assert statuses(processes, path, anonymous=True) == {403}


def request_all(
    processes: list[Process], method: str, path: str, bodies: list[Any]
) -> list[Answer]:
    """Send every process a request of nobody, all at once, and return their answers."""
    for process, body in zip(processes, bodies, strict=True):
        process.pipe.send((method, path, body, True))
    return [process.pipe.recv() for process in processes]


def suspends(processes: list[Process], stage: Stage, *, attempts: int) -> list[bool]:
    """Tell for every process whether so many wrong passwords suspend a user there."""
    people = [person(stage) for _ in processes]
    for _ in range(attempts):
        wrong = [{"email": email, "password": "wrong"} for email in people]
        request_all(processes, "POST", "/auth/login", wrong)
    return [of_user(stage, email, "status") == "suspended" for email in people]


def registers(processes: list[Process], number: int, password: str) -> list[int]:
    bodies = [
        {"email": f"new{number}_{index}_{len(password)}@example.com", "password": password}
        for index in range(PROCESSES)
    ]
    answers = request_all(processes, "POST", "/users/register", bodies)
    return [answer.status for answer in answers]


def test_settings_hold_at_the_next_request_of_every_process(
    processes: list[Process], stage: Stage
) -> None:
    content = b64encode(picture("PNG")).decode()
    file = {"filename_download": "a.png", "data": content}
    answer = processes[0].send("POST", "/files", file)
    image = f"/assets/{answer.data['id']}"
    changed_settings: dict[str, object] = {
        "auth_login_attempts": 2,
        "auth_password_policy": "^.{12,}$",
        "storage_asset_transform": "presets",
        "storage_asset_presets": [{"key": "tiny", "width": 1}],
        "public_registration": True,
        "public_registration_verify_email": False,
    }
    closed: dict[str, object] = {
        "auth_login_attempts": 4,
        "auth_password_policy": None,
        "storage_asset_transform": "all",
        "storage_asset_presets": [],
        "public_registration": False,
    }
    for number in range(PROCESSES):
        changer = processes[number]
        assert changer.send("PATCH", "/settings", changed_settings).status == 200
        assert statuses(processes, f"{image}?width=2") == {400}
        assert statuses(processes, f"{image}?key=tiny") == {200}
        assert registers(processes, number, "too short") == [422] * PROCESSES
        assert registers(processes, number, "a password of some length") == [204] * PROCESSES
        assert suspends(processes, stage, attempts=2) == [True] * PROCESSES

        assert changer.send("PATCH", "/settings", closed).status == 200
        assert statuses(processes, f"{image}?width=2") == {200}
        assert statuses(processes, f"{image}?key=tiny") == {400}
        assert registers(processes, number, "a password that is not taken") == [403] * PROCESSES
        assert suspends(processes, stage, attempts=2) == [False] * PROCESSES


def test_long_statements_are_kept_up_to_a_length_in_all(
    make_client: Callable[..., Client], admin_token: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(snapshot, "MAX_STATEMENT_CHARACTERS", 20_000)
    client = make_client().bearing(admin_token)
    for number in range(20):
        assert client.get(f"/users?fields=*.*&alias[a{number}]=id").status == 200
        assert (
            client.get(f"/roles?fields=a&alias[a]=id&sort={'-' * (number % 2)}name").status == 200
        )
    current = client.app.store.snapshots.current()
    lengths = [len(plan.statement.text) for plan in current.prepared_reads.values()]
    statements = [len(plan.statement.text) for plan in current.statements.values()]
    assert 0 < sum(lengths) <= 20_000
    assert 0 < sum(statements) <= 20_000


def test_different_queries_fill_the_caches_of_a_process_up_to_their_bound_only(
    make_client: Callable[..., Client], admin_token: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(snapshot, "MAX_STATEMENTS", 20)
    client = make_client().bearing(admin_token)
    for number in range(100):
        assert (
            client.get(
                f"/roles?filter[name]={number}&fields=a{number}&alias[a{number}]=name"
            ).status
            == 200
        )
    current = client.app.store.snapshots.current()
    assert 18 <= len(current.prepared_reads) <= 20
    assert 18 <= len(current.statements) <= 20


def test_long_query_strings_are_not_kept(
    make_client: Callable[..., Client], admin_token: str
) -> None:
    client = make_client().bearing(admin_token)
    client.get("/roles?limit=1")
    current = client.app.store.snapshots.current()
    kept = len(current.prepared_reads)
    for number in range(3):
        fields = ",".join(["name"] * 1_000) + f",a{number}"
        assert client.get(f"/roles?fields={fields}&alias[a{number}]=id").status == 200
    assert client.app.store.snapshots.current() is current
    assert len(current.prepared_reads) == kept
