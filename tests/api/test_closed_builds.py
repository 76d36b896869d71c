"""A service that is closed ends the builds of its process, and leaves no connection behind."""

from __future__ import annotations

import threading

import psycopg
import pytest

from tests.client import Client
from tests.databases import run_sql
from tests.index_building import INDEXED, INVALID, JOBS, ask, state, wait_for_state
from tests.waiting import eventually

pytestmark = pytest.mark.release

CONNECTIONS = """
    SELECT count(*) FROM pg_stat_activity
    WHERE datname = current_database()
      AND pid <> pg_backend_pid()
      AND backend_type = 'client backend'
"""


def builders() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("index-")]


def test_a_build_that_runs_is_canceled_and_stays_in_the_queue(large: Client, dsn: str) -> None:
    with psycopg.connect(dsn) as reader:
        reader.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        reader.execute("SELECT 1")
        ask(large)
        wait_for_state(large, "building")
        large.close()
        assert builders() == []
        # A server process ends behind its connection.
        eventually(lambda: run_sql(dsn, CONNECTIONS) == [(1,)])
        reader.rollback()
    assert run_sql(dsn, JOBS) == [("todo",)]
    # A service that is used again opens its connections again, and can build.
    assert state(large) == "waiting"
    ask(large)
    wait_for_state(large, "ready")
    large.close()
    assert builders() == []
    eventually(lambda: run_sql(dsn, CONNECTIONS) == [(0,)])
    assert run_sql(dsn, INDEXED) == [("a",)]
    assert run_sql(dsn, INVALID) == [(0,)]


def test_requests_during_a_build_take_no_connections_of_their_own(large: Client, dsn: str) -> None:
    names = [f"f{number}" for number in range(4)]
    for name in names:
        assert large.post("/fields/things", {"field": name, "type": "string"}).status == 200
    with psycopg.connect(dsn) as reader:
        reader.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        reader.execute("SELECT 1")
        for name in names:
            ask(large, f"/fields/things/{name}")
        assert builders() == ["index-build-things"]
        reader.rollback()
    eventually(lambda: builders() == [])
    assert [name for (name,) in run_sql(dsn, INDEXED)] == names
    assert run_sql(dsn, JOBS) == []


def test_a_build_that_waits_for_its_turn_is_ended_too(large: Client, dsn: str) -> None:
    with psycopg.connect(dsn) as other:
        key = "hashtextextended(current_schema() || ' things', 2)"
        other.execute(f"SELECT pg_advisory_xact_lock({key})".encode())
        ask(large)
        large.close()
        assert builders() == []
        eventually(lambda: run_sql(dsn, CONNECTIONS) == [(1,)])
    assert run_sql(dsn, JOBS) == [("todo",)]
