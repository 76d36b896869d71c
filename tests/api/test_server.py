"""/server, request ids, and what the service does when its database is away."""

from __future__ import annotations

import json
import logging
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta
from typing import Any

import psycopg
import pytest
from falcon import testing
from psycopg.conninfo import make_conninfo

from cms.app import create_app, create_wsgi
from cms.auth import accounts
from cms.config import Config, ConfigError
from cms.config.secret_file import secret_of
from cms.database import connections
from cms.database.connections import Row
from cms.database.migrate import migrate
from cms.database.reader import Reader
from cms.logs import PrettyFormatter, log_request, start_logging
from tests.client import ADMIN_EMAIL, ADMIN_PASSWORD, Client
from tests.databases import end_connections


@pytest.fixture
def dsn(module_dsn: str) -> str:
    return module_dsn


@pytest.fixture
def without_database(
    config: Config, make_client: Callable[..., Client], monkeypatch: pytest.MonkeyPatch
) -> Client:
    """A client of an application whose database does not answer; it
    waits for it shorter than it would.
    """
    monkeypatch.setattr(connections, "_BORROW_SECONDS", 0.2)
    return make_client(database_url="host=127.0.0.1 port=9 dbname=nowhere")


def test_ping_answers_without_a_database(without_database: Client) -> None:
    answer = without_database.get("/server/ping")
    assert (answer.status, answer.text) == (200, "pong")


def test_without_a_database_the_answer_is_503_and_names_it(without_database: Client) -> None:
    answer = without_database.get("/items/anything")
    assert (answer.status, answer.codes) == (503, ["SERVICE_UNAVAILABLE"])
    assert answer.errors[0]["service"] == "database"
    assert int(answer.headers["retry-after"]) > 0


def test_health_without_a_database_is_503_with_the_reason(without_database: Client) -> None:
    answer = without_database.get("/server/health")
    assert answer.status == 503
    assert int(answer.headers["retry-after"]) > 0
    assert answer.body["data"] == {
        "status": "error",
        "reason": "The database is not available. "
        "It does not answer, or all connections to it are in use.",
    }


def test_health_authenticates_only_when_all_is_well_and_a_token_comes(
    without_database: Client,
    anonymous: Client,
    api: Client,
    admin_token: str,
    outside_statements: list[str],
) -> None:
    assert without_database.bearing(admin_token).get("/server/health").status == 503
    assert len(outside_statements) == 1
    assert anonymous.get("/server/health").status == 200
    assert len(outside_statements) == 2
    assert api.get("/server/health").status == 200
    assert len(outside_statements) > 3


@pytest.fixture
def outside_statements(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The statements that are read outside transactions from now on."""
    statements: list[str] = []
    fetch = Reader.fetch

    def noted(
        reader: Reader, text: str, values: Sequence[object] = (), **options: Any
    ) -> list[Row]:
        statements.append(text)
        return fetch(reader, text, values, **options)

    monkeypatch.setattr(Reader, "fetch", noted)
    return statements


def test_on_a_database_that_is_not_migrated_every_answer_names_the_command(
    empty_dsn: str, admin_token: str, make_client: Callable[..., Client]
) -> None:
    client = make_client(database_url=empty_dsn)
    health = client.get("/server/health")
    assert (health.status, "run `cms migrate`" in health.body["data"]["reason"]) == (503, True)
    for answer in (
        client.get("/items/anything"),
        client.bearing(admin_token).get("/collections"),
        client.bearing(admin_token).post("/collections", {"collection": "a"}),
        client.post("/auth/login", {"email": "a@example.com", "password": "x"}),
    ):
        assert (answer.status, answer.codes) == (503, ["SERVICE_UNAVAILABLE"]), answer
        assert "run `cms migrate`" in answer.errors[0]["reason"], answer


@pytest.mark.release
def test_an_address_may_name_a_schema_of_its_own(empty_dsn: str, settings: Config) -> None:
    with psycopg.connect(empty_dsn, autocommit=True) as connection:
        connection.execute("CREATE SCHEMA tenant")
    address = make_conninfo(empty_dsn, options="-csearch_path=tenant")
    migrate(address)
    token = token_of_admin(address, settings)
    client = Client(
        create_app(replace(settings, database_url=address, database_pool_size=2)), token
    )
    try:
        assert client.post("/collections", {"collection": "books", "schema": {}}).status == 200
        assert client.post("/items/books", {}).data == {"id": 1}
        assert client.get("/items/books").data == [{"id": 1}]
        with client.app.store.database.autocommit_connection() as connection:
            assert connection.execute("SELECT current_schema()::text") == [("tenant",)]
    finally:
        client.close()


def token_of_admin(address: str, settings: Config) -> str:
    """Make the first admin of a database and return a token of it."""
    accounts.first_admin(address, email=ADMIN_EMAIL, password=ADMIN_PASSWORD)
    return accounts.admin_token(address, secret=secret_of(settings), life=timedelta(minutes=5))


def test_an_address_that_cannot_be_read_is_503(make_client: Callable[..., Client]) -> None:
    answer = make_client(database_url="port=hunter2 nonsense").get("/items/anything")
    assert (answer.status, answer.codes) == (503, ["SERVICE_UNAVAILABLE"])
    assert "hunter2" not in answer.text


def test_without_an_address_the_application_names_the_setting(
    config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cms.app.load", lambda environ, folder: replace(config, database_url=None))
    monkeypatch.setattr("cms.app.start_logging", lambda config: None)
    with pytest.raises(ConfigError, match="DATABASE_URL"):
        create_wsgi()


def test_health_is_ok_and_shows_its_parts_to_administrators_only(
    api: Client, anonymous: Client
) -> None:
    assert anonymous.get("/server/health").data == {"status": "ok"}
    assert api.get("/server/health").data["database"]["status"] == "ok"


def test_the_version_is_reported_to_administrators_only(api: Client, anonymous: Client) -> None:
    assert anonymous.get("/server/info").data.keys() == {"project"}
    versions = api.get("/server/info").data
    assert versions.keys() == {"project", "version", "compatible_with", "database"}
    assert versions["compatible_with"] == "directus 10.13"


@pytest.mark.release
def test_a_restart_of_the_database_is_not_noticed_by_clients(api: Client, dsn: str) -> None:
    assert api.get("/roles").status == 200
    assert api.post("/collections", {"collection": "before"}).status == 200
    end_connections(dsn)
    assert api.get("/roles").status == 200
    assert api.post("/collections", {"collection": "after"}).status == 200


def test_every_answer_carries_the_id_of_its_request(anonymous: Client) -> None:
    own = anonymous.get("/server/ping").headers["x-request-id"]
    assert own != anonymous.get("/server/ping").headers["x-request-id"]
    assert (
        anonymous.send("GET", "/server/ping", **{"X-Request-Id": "mine-1"}).headers["x-request-id"]
        == "mine-1"
    )
    forged = anonymous.send("GET", "/server/ping", **{"X-Request-Id": "a b\tc"}).headers[
        "x-request-id"
    ]
    assert forged != "a b\tc"


def test_an_unknown_route_and_a_wrong_method_have_errors_of_their_own(anonymous: Client) -> None:
    missing = anonymous.get("/nowhere")
    assert (missing.status, missing.codes, missing.errors[0]["path"]) == (
        404,
        ["ROUTE_NOT_FOUND"],
        "/nowhere",
    )
    wrong = anonymous.send("PUT", "/items/x")
    assert (wrong.status, wrong.codes) == (405, ["METHOD_NOT_ALLOWED"])
    assert "SEARCH" in wrong.headers["allow"]
    assert "PATCH" in wrong.errors[0]["allowed"]


@pytest.mark.parametrize("method", ["BREW", "WEBSOCKET", "get"])
def test_a_method_that_nobody_knows_is_not_allowed(anonymous: Client, method: str) -> None:
    wrong = environ_of(anonymous, method, "/items/x")
    assert wrong.status_code == 405
    assert wrong.json["errors"][0]["message"].startswith(f"The method {method} is not allowed")
    assert "GET" in wrong.headers["Allow"]
    assert environ_of(anonymous, method, "/nowhere").status_code == 404


def environ_of(client: Client, method: str, path: str) -> testing.Result:
    """Send a method as it is: the client of the tests refuses those that it does not know."""
    environ = testing.create_environ(path=path) | {"REQUEST_METHOD": method}
    answered = testing.StartResponseMock()
    body = client.app(environ, answered)
    return testing.Result(body, answered.status or "", answered.headers or ())


def test_options_lists_what_a_route_takes(anonymous: Client) -> None:
    answer = anonymous.send("OPTIONS", "/items/x")
    assert answer.status == 200
    assert set(answer.headers["allow"].split(", ")) == {
        "DELETE",
        "GET",
        "HEAD",
        "PATCH",
        "POST",
        "QUERY",
        "SEARCH",
    }


@pytest.mark.quick(2)
@pytest.mark.parametrize(
    "path", ["/server/ping", "/server/info", "/roles", "/users/me", "/collections"]
)
def test_head_is_answered_as_get_without_the_body(api: Client, path: str) -> None:
    head = api.send("HEAD", path)
    get = api.get(path)
    assert (head.status, head.text) == (200, "")
    own = {"x-request-id"}
    assert {key: value for key, value in head.headers.items() if key not in own} == {
        key: value for key, value in get.headers.items() if key not in own
    }


def test_the_log_names_the_method_that_the_client_named(
    anonymous: Client, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level("INFO", logger="cms.access"):
        anonymous.send("SEARCH", "/items/x", {})
    lines = [record.getMessage() for record in caplog.records if record.name == "cms.access"]
    assert lines == ["SEARCH /items/x 403"]


def test_the_driver_logs_in_the_style_of_the_service(
    config: Config, capsys: pytest.CaptureFixture[str], own_loggers: None
) -> None:
    start_logging(replace(config, log_level="info", log_style="json"))
    logging.getLogger("psycopg.pool").warning("it does not answer\nat all")
    line = json.loads(capsys.readouterr().err)
    assert (line["level"], line["message"]) == ("warn", "it does not answer\nat all")


def test_the_records_of_others_stay_whole(
    config: Config, caplog: pytest.LogCaptureFixture, own_loggers: None
) -> None:
    """A server's own log may show what the service's does not: the process,
    the thread, the place in the code.
    """
    start_logging(replace(config, log_level="info"))
    logging.getLogger("somebody.else").warning("it is late")
    text = logging.Formatter("%(process)d %(thread)d %(processName)s %(filename)s").format(
        caplog.records[-1]
    )
    assert text == f"{os.getpid()} {threading.get_ident()} MainProcess test_server.py"


@pytest.mark.parametrize("style", ["json", "pretty"])
def test_the_line_of_a_request_is_the_one_that_a_record_makes(
    config: Config,
    capsys: pytest.CaptureFixture[str],
    own_loggers: None,
    monkeypatch: pytest.MonkeyPatch,
    style: str,
) -> None:
    monkeypatch.setattr(time, "time", lambda: 1_700_000_000.5)
    line = ("id1", "GET", "/items/\n\u2028é", 200, 0.0015)
    start_logging(replace(config, log_level="info", log_style=style))
    log_request(*line)
    straight = capsys.readouterr().err
    logging.getLogger("cms").addHandler(logging.NullHandler())
    log_request(*line)
    assert straight == capsys.readouterr().err
    assert straight.count("\n") == 1
    assert "id1" in straight
    assert "1.5" in straight


@pytest.mark.parametrize(
    "taken", ["a handler", "a level", "a filter", "a form", "a line of its own", "the root"]
)
def test_whoever_changes_where_the_log_goes_is_heeded(
    config: Config, capsys: pytest.CaptureFixture[str], own_loggers: None, taken: str
) -> None:
    start_logging(replace(config, log_level="info"))
    service = logging.getLogger("cms")
    access = logging.getLogger("cms.access")
    form = logging.Formatter("taken %(ms)s")
    (handler,) = service.handlers
    heard = logging.StreamHandler(sys.stderr)
    heard.setFormatter(form)
    match taken:
        case "a handler":
            access.addHandler(heard)
        case "a level":
            handler.setLevel(logging.ERROR)
        case "a filter":
            access.addFilter(lambda record: False)
        case "a form":
            handler.setFormatter(form)
        case "a line of its own":
            access.propagate = False
        case "the root":
            service.propagate = True
            logging.getLogger().addHandler(heard)
    try:
        log_request("id1", "GET", "/", 200, 0.0015)
    finally:
        logging.getLogger().removeHandler(heard)
        access.handlers.clear()
        access.filters.clear()
        access.propagate = True
    logged = capsys.readouterr().err
    assert ("taken 1.5" in logged) == (taken in ("a handler", "a form", "the root"))
    assert ("GET / 200" in logged) == (taken in ("a handler", "the root"))


def test_nothing_is_logged_of_requests_below_the_level(
    config: Config, api: Client, capsys: pytest.CaptureFixture[str], own_loggers: None
) -> None:
    start_logging(replace(config, log_level="warn"))
    assert api.get("/server/ping").status == 200
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("log", ["nobody reads", "is closed", "is none"])
def test_a_log_that_cannot_be_written_hinders_no_answer(
    config: Config, api: Client, own_loggers: None, monkeypatch: pytest.MonkeyPatch, log: str
) -> None:
    read, write = os.pipe()
    stream = os.fdopen(write, "w", buffering=1)
    with monkeypatch.context() as patch:
        patch.setattr(sys, "stderr", None if log == "is none" else stream)
        start_logging(replace(config, log_level="info"))
    if log == "is closed":
        stream.close()
    os.close(read)
    assert api.get("/server/ping").status == 200
    with suppress(OSError):
        stream.close()  # it still holds the line


def test_a_line_for_people_has_the_second() -> None:
    lines = PrettyFormatter()
    records = [
        logging.makeLogRecord({"created": 1_700_000_000.9 + second, "msg": "x"})
        for second in (0, 1, 0)
    ]
    times = [lines.format(record).split()[0] for record in records]
    assert times == [
        time.strftime("%H:%M:%S", time.localtime(1_700_000_000 + second)) for second in (0, 1, 0)
    ]


@pytest.fixture
def own_loggers() -> Iterator[None]:
    """Give the loggers back as they were."""
    loggers = [logging.getLogger(name) for name in ("cms", "psycopg")]
    before = [(logger.handlers[:], logger.propagate, logger.level) for logger in loggers]
    yield
    for logger, (handlers, propagate, level) in zip(loggers, before, strict=True):
        logger.handlers[:] = handlers
        logger.propagate = propagate
        logger.setLevel(level)


def test_two_applications_live_in_one_process(
    config: Config, make_client: Callable[..., Client]
) -> None:
    first = make_client()
    second = make_client()
    assert first.get("/server/health").status == second.get("/server/health").status == 200
    first.close()
    assert second.get("/server/health").status == 200


def test_it_runs_under_a_prefix_of_another_application(api: Client) -> None:
    answer = api._client.simulate_get("/roles", root_path="/cms")
    assert answer.status_code == 403  # no token: simulate_get bypasses the client's own header


def test_a_slow_statement_is_stopped_and_answered_503(
    api: Client, config: Config, make_client: Callable[..., Client], dsn: str
) -> None:
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute("CREATE VIEW slow AS SELECT 1 AS id, pg_sleep(5)::text AS nap")
    api.post("/utils/cache/clear")
    short_timeout = make_client(db_statement_timeout=replace(config).db_statement_timeout / 300)
    answer = Client(short_timeout.app, api._token).get("/items/slow")
    assert (answer.status, answer.errors[0]["service"]) == (503, "database")
