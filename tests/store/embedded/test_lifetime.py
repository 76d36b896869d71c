"""The embedded server starts, is shared, and goes when nobody uses it."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict

from cms.embedded import EmbeddedError
from cms.embedded.lifetime import start
from tests.store.embedded.servers import (
    FAST,
    User,
    gone,
    kill,
    postmaster,
    running,
    server_log,
    started,
    value,
    watchdog_of,
    words,
)
from tests.waiting import eventually

slow = pytest.mark.slow


@slow
def test_a_first_start_makes_a_durable_and_private_database(folder: Path) -> None:
    with start(folder / "new" / "data") as server:
        assert conninfo_to_dict(server.dsn)["dbname"] == "cms"
        settings = (
            "fsync",
            "data_checksums",
            "listen_addresses",
            "server_encoding",
            "random_page_cost",
        )
        values = [value(server.dsn, f"current_setting('{name}')") for name in settings]
        assert values == ["on", "on", "", "UTF8", "1.1"]
        assert (
            value(server.dsn, "SELECT rolsuper FROM pg_roles WHERE rolname = current_user")
            == "true"
        )
        assert value(server.dsn, "lower('ÄÖÜ')") == "äöü"
        assert value(server.dsn, "'Z' < 'a' AND 'z' < 'ä'") == "true"
        assert value(server.dsn, "current_setting('server_version_num')::int / 10000") == str(
            server.version
        )
        assert server.cluster == folder / "new" / "data" / "postgres"
        assert server.cluster.stat().st_mode & 0o777 == 0o700


@pytest.mark.clock
@slow
def test_a_second_start_takes_under_three_seconds_and_has_the_rows(data: Path) -> None:
    before = time.monotonic()
    with start(data) as server:
        assert time.monotonic() - before < 3
        assert words(server.dsn) == ["still here"]


@slow
def test_a_clean_stop_leaves_no_process_and_nothing_to_recover(data: Path) -> None:
    server = start(data, settings=FAST)
    number = postmaster(data)
    watchdog = watchdog_of(data)
    with psycopg.connect(server.dsn) as idle:
        server.stop()
        server.stop()
        with pytest.raises(psycopg.OperationalError):
            idle.execute("SELECT 1")
    assert not running(data)
    assert not (data / "postgres" / "postmaster.pid").exists()
    eventually(lambda: gone(number) and gone(watchdog))
    start(data, settings=FAST).stop()
    assert "was interrupted" not in server_log(data)
    assert "not properly shut down" not in server_log(data)


@slow
def test_settings_count_for_the_server_that_is_started(data: Path) -> None:
    with start(data, settings={**FAST, "work_mem": "7MB"}) as server:
        assert value(server.dsn, "current_setting('work_mem')") == "7MB"


@slow
def test_a_server_that_does_not_start_reports_the_reason_and_leaves_nothing_running(
    data: Path,
) -> None:
    with pytest.raises(EmbeddedError, match="shared_buffers"):
        start(data, settings={"shared_buffers": "plenty"})
    assert not running(data)
    start(data, settings=FAST).stop()


@slow
def test_the_log_has_nothing_of_what_people_store(data: Path) -> None:
    with (
        start(data, settings=FAST) as server,
        psycopg.connect(server.dsn, autocommit=True) as session,
    ):
        session.execute("CREATE TEMP TABLE accounts (secret TEXT PRIMARY KEY, age INT NOT NULL)")
        with pytest.raises(psycopg.errors.NotNullViolation):
            session.execute("INSERT INTO accounts VALUES ('sesame')")
    assert "violates not-null constraint" in server_log(data)
    assert "sesame" not in server_log(data)


@slow
def test_secrets_of_the_environment_do_not_reach_the_server(
    data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ADMIN_PASSWORD", "sesame")
    monkeypatch.setenv("PGPORT", "1")
    with start(data, settings=FAST) as server:
        with psycopg.connect(server.dsn, autocommit=True) as session:
            session.execute("CREATE TEMP TABLE said (line TEXT)")
            session.execute("COPY said FROM PROGRAM 'env'")
            lines = [row[0] for row in session.execute("SELECT line FROM said")]
        assert any(line.startswith("PATH=") for line in lines)
        assert not any("sesame" in line for line in lines)


@slow
def test_six_processes_start_one_new_server_at_once(
    folder: Path, users: Callable[..., User]
) -> None:
    six = [users(folder) for _ in range(6)]
    assert len({started(user.hear()) for user in six}) == 1
    for user in six[1:]:
        user.do("stop")
        assert running(folder)
    six[0].do("stop")
    assert not running(folder)


@slow
def test_two_starts_in_one_process_share_the_server(data: Path) -> None:
    with start(data, settings=FAST) as first:
        with start(data, settings=FAST) as second:
            assert started(first.dsn) == started(second.dsn)
        assert words(first.dsn) == ["still here"]
    assert not running(data)


@slow
def test_a_killed_user_neither_stops_the_server_for_others_nor_keeps_it(
    data: Path, users: Callable[..., User]
) -> None:
    killed = users(data)
    killed.hear()
    with start(data, settings=FAST) as server:
        killed.end(signal.SIGKILL)
        assert words(server.dsn) == ["still here"]
    assert not running(data)


@slow
def test_the_server_goes_when_its_only_user_is_killed(
    data: Path, users: Callable[..., User]
) -> None:
    user = users(data)
    user.hear()
    user.end(signal.SIGKILL)
    eventually(lambda: not running(data))
    assert "was interrupted" not in server_log(data)
    assert not (data / "postgres" / "postmaster.pid").exists()


@slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_the_end_of_a_session_does_not_end_the_watchdog(
    data: Path, users: Callable[..., User], number: signal.Signals
) -> None:
    user = users(data)
    user.hear()
    os.kill(watchdog_of(data), number)
    user.end(signal.SIGKILL)
    eventually(lambda: not running(data))


@slow
def test_a_start_joins_the_server_that_everybody_else_was_killed_around(
    data: Path, users: Callable[..., User]
) -> None:
    user = users(data)
    before = started(user.hear())
    kill(watchdog_of(data))
    user.end(signal.SIGKILL)
    assert running(data)
    with start(data, settings=FAST) as server:
        assert started(server.dsn) == before
    assert not running(data)


@slow
def test_an_interrupt_from_the_terminal_does_not_reach_the_server(
    data: Path, users: Callable[..., User]
) -> None:
    user = users(data)
    dsn = user.hear()
    with start(data, settings=FAST):
        user.end(signal.SIGINT)
        assert words(dsn) == ["still here"]


@slow
def test_a_forked_child_cannot_stop_the_server_of_its_parent(
    data: Path, users: Callable[..., User]
) -> None:
    user = users(data)
    dsn = user.hear()
    user.do("fork and stop")
    assert words(dsn) == ["still here"]
    user.do("stop")
    assert not running(data)
