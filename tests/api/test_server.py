"""/server, request ids, and what the service does when its database is away."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace

import psycopg
import pytest

from cms.config import Config
from tests.client import Client


@pytest.fixture
def homeless(config: Config, make_client: Callable[..., Client]) -> Client:
    """A client of an application whose database does not answer."""
    return make_client(database_url="host=127.0.0.1 port=9 dbname=nowhere")


def test_ping_answers_without_a_database(homeless: Client) -> None:
    answer = homeless.get("/server/ping")
    assert (answer.status, answer.text) == (200, "pong")


def test_without_a_database_the_answer_is_503_and_names_it(homeless: Client) -> None:
    answer = homeless.get("/items/anything")
    assert (answer.status, answer.codes) == (503, ["SERVICE_UNAVAILABLE"])
    assert answer.errors[0]["service"] == "database"
    assert homeless.get("/server/health").body == {"data": {"status": "error"}}


def test_health_is_ok_and_shows_its_parts_to_administrators_only(api: Client, anonymous: Client) -> None:
    assert anonymous.get("/server/health").data == {"status": "ok"}
    assert api.get("/server/health").data["database"]["status"] == "ok"


def test_the_version_is_told_to_administrators_only(api: Client, anonymous: Client) -> None:
    assert anonymous.get("/server/info").data.keys() == {"project"}
    assert api.get("/server/info").data.keys() == {"project", "version", "database"}


def test_a_restart_of_the_database_is_not_noticed_by_clients(api: Client, dsn: str) -> None:
    assert api.get("/items/system_roles").status == 200
    assert api.post("/collections", {"collection": "before"}).status == 200
    end_connections(dsn)
    assert api.get("/items/system_roles").status == 200
    assert api.post("/collections", {"collection": "after"}).status == 200


def end_connections(dsn: str) -> None:
    """End every other connection to the database and wait until they are gone, as after a restart."""
    others = "FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute(f"SELECT pg_terminate_backend(pid) {others}")
        while connection.execute(f"SELECT 1 {others}").fetchone():
            time.sleep(0.01)


def test_every_answer_carries_the_id_of_its_request(anonymous: Client) -> None:
    own = anonymous.get("/server/ping").headers["x-request-id"]
    assert own != anonymous.get("/server/ping").headers["x-request-id"]
    assert anonymous.send("GET", "/server/ping", **{"X-Request-Id": "mine-1"}).headers["x-request-id"] == "mine-1"
    forged = anonymous.send("GET", "/server/ping", **{"X-Request-Id": "a b\tc"}).headers["x-request-id"]
    assert forged != "a b\tc"


def test_an_unknown_route_and_a_wrong_method_say_so(anonymous: Client) -> None:
    missing = anonymous.get("/nowhere")
    assert (missing.status, missing.codes, missing.errors[0]["path"]) == (404, ["ROUTE_NOT_FOUND"], "/nowhere")
    wrong = anonymous.send("PUT", "/items/x")
    assert (wrong.status, wrong.codes) == (405, ["METHOD_NOT_ALLOWED"])
    assert "SEARCH" in wrong.headers["allow"]
    assert "PATCH" in wrong.errors[0]["allowed"]


def test_two_applications_live_in_one_process(config: Config, make_client: Callable[..., Client]) -> None:
    first, second = make_client(), make_client()
    assert first.get("/server/health").status == second.get("/server/health").status == 200
    first.close()
    assert second.get("/server/health").status == 200


def test_it_runs_under_a_prefix_of_another_application(api: Client) -> None:
    answer = api._client.simulate_get("/items/system_roles", root_path="/cms")
    assert answer.status_code == 403  # no token: simulate_get bypasses the client's own header


def test_a_slow_statement_is_stopped_and_answered_503(
    api: Client, config: Config, make_client: Callable[..., Client], dsn: str
) -> None:
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute("CREATE VIEW slow AS SELECT 1 AS id, pg_sleep(5)::text AS nap")
    api.post("/utils/cache/clear")
    hurried = make_client(db_statement_timeout=replace(config).db_statement_timeout / 300)
    answer = Client(hurried.app, api._token).get("/items/slow")
    assert (answer.status, answer.errors[0]["service"]) == (503, "database")
