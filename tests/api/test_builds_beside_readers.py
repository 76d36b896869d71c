"""Builds that need a table for themselves for a moment hold up others as little as can be."""

from __future__ import annotations

from functools import partial
from threading import Thread

import psycopg
import pytest

from cms.config import Config
from cms.database.connections import Database
from cms.structure import indexes
from cms.structure.index_builds import build
from tests.client import Client
from tests.databases import run_sql
from tests.index_building import (
    CONSTRAINED,
    DROP_WAITS,
    FIELD,
    GIVE_UP,
    INVALID,
    NOT_UNIQUE,
    WAITING_FOR_TABLE,
    ask,
    assert_indexed,
    assert_unique,
    before_each_build,
    behind_each_build,
    make_unique,
    schema,
    set_for_database,
    work,
)
from tests.waiting import eventually

pytestmark = [pytest.mark.release, pytest.mark.usefixtures("worker")]

AWAITING_STRUCTURE = "SELECT pid FROM pg_locks WHERE locktype = 'transactionid' AND NOT granted"


def test_it_waits_for_those_who_use_the_table_without_holding_up_others_for_long(
    large: Client,
    config: Config,
    job_database: Database,
    dsn: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(indexes, "LOCK_TIME", "50ms")
    monkeypatch.setattr(indexes, "LOCK_PAUSE_SECONDS", 0.05)
    make_unique(large)
    with psycopg.connect(dsn) as reader:
        reader.execute("SELECT FROM things")
        builder = Thread(target=work, args=(config, job_database))
        builder.start()
        # The index is there, and its constraint waits.
        eventually(lambda: bool(schema(large)["is_unique"]))
        assert large.post("/items/things", {"a": "x"}).status == 200
        assert large.get("/items/things").status == 200
        builder.join(0.3)
        assert builder.is_alive()
        reader.rollback()
    builder.join()
    assert_unique(dsn, "a")


def test_changes_of_structure_do_not_wait_for_those_who_use_the_table(
    large: Client,
    config: Config,
    job_database: Database,
    dsn: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Longer than the service lets a change wait.
    monkeypatch.setattr(indexes, "LOCK_TIME", "60s")
    large.post("/collections", {"collection": "others", "schema": {}, "fields": []})
    make_unique(large)
    with psycopg.connect(dsn) as reader:
        reader.execute("SELECT FROM things")
        builder = Thread(target=work, args=(config, job_database))
        builder.start()
        eventually(lambda: run_sql(dsn, WAITING_FOR_TABLE) != [])
        assert large.patch("/collections/others", {"meta": {"note": "x"}}).status == 200
        assert run_sql(dsn, CONSTRAINED) == []
        reader.rollback()
    builder.join()
    assert_unique(dsn, "a")


def test_changes_of_structure_do_not_wait_until_an_index_is_dropped_that_was_given_up(
    large: Client,
    config: Config,
    job_database: Database,
    dsn: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    large.post("/collections", {"collection": "others", "schema": {}, "fields": []})
    ask(large)
    with psycopg.connect(dsn) as reader:

        def give_up_and_read() -> None:
            assert large.patch(FIELD, GIVE_UP).status == 200
            reader.execute("SELECT FROM things")

        before_each_build(monkeypatch, give_up_and_read)
        builder = Thread(target=work, args=(config, job_database))
        builder.start()
        eventually(lambda: run_sql(dsn, DROP_WAITS) != [])
        assert large.patch("/collections/others", {"meta": {"note": "x"}}).status == 200
        reader.rollback()
    builder.join()
    assert_indexed(dsn)


@pytest.mark.parametrize("setting", ["is_indexed", "is_unique"])
def test_an_index_that_waits_to_be_dropped_is_there_if_it_is_asked_for_again(
    large: Client,
    config: Config,
    job_database: Database,
    dsn: str,
    monkeypatch: pytest.MonkeyPatch,
    setting: str,
) -> None:
    monkeypatch.setattr(indexes, "LOCK_TIME", "50ms")
    monkeypatch.setattr(indexes, "LOCK_PAUSE_SECONDS", 0.05)
    assert large.patch(FIELD, {"schema": {setting: True}}).status == 200
    with psycopg.connect(dsn) as reader:
        withdrawals = [{"schema": {setting: False}}]

        def give_up_and_read() -> None:
            while withdrawals:
                assert large.patch(FIELD, withdrawals.pop()).status == 200
                reader.execute("SELECT FROM things")

        before_each_build(monkeypatch, give_up_and_read)
        builder = Thread(target=work, args=(config, job_database))
        builder.start()
        waits = WAITING_FOR_TABLE if setting == "is_unique" else DROP_WAITS
        eventually(lambda: run_sql(dsn, waits) != [])
        assert large.patch(FIELD, {"schema": {setting: True}}).status == 200
        reader.rollback()
    builder.join()
    work(config, job_database)
    assert schema(large)[setting]
    if setting == "is_unique":
        assert_unique(dsn, "a")
    else:
        assert_indexed(dsn, "a")


def test_the_table_is_not_locked_while_the_constraint_waits_for_a_change_of_structure(
    large: Client,
    config: Config,
    job_database: Database,
    dsn: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Longer than the service lets a write wait.
    monkeypatch.setattr(indexes, "LOCK_TIME", "60s")
    make_unique(large)
    with psycopg.connect(dsn) as changer:
        lock = b"SELECT FROM system_version FOR NO KEY UPDATE"
        behind_each_build(monkeypatch, partial(changer.execute, lock))
        builder = Thread(target=work, args=(config, job_database))
        builder.start()
        eventually(lambda: run_sql(dsn, AWAITING_STRUCTURE) != [])
        assert large.post("/items/things", {"a": "x"}).status == 200
        assert run_sql(dsn, CONSTRAINED) == []
        changer.rollback()
    builder.join()
    assert_unique(dsn, "a")


def test_what_is_left_is_dropped_without_holding_up_others(
    large: Client,
    config: Config,
    job_database: Database,
    dsn: str,
) -> None:
    large.post("/items/things", [{"a": "x"}, {"a": "x"}])
    make_unique(large)
    with psycopg.connect(dsn) as reader:
        reader.execute("SELECT FROM things")
        builder = Thread(target=work, args=(config, job_database))
        builder.start()
        eventually(lambda: run_sql(dsn, INVALID) == [(1,)])
        assert large.get("/items/things").status == 200
        reader.rollback()
    builder.join()
    assert schema(large)["unique_build"] == NOT_UNIQUE
    assert run_sql(dsn, INVALID) == [(0,)]


def test_a_session_may_pause_longer_than_the_server_lets_it_idle(
    large: Client, job_database: Database, dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(indexes, "LOCK_TIME", "50ms")
    monkeypatch.setattr(indexes, "LOCK_PAUSE_SECONDS", 0.5)
    make_unique(large)
    with psycopg.connect(dsn) as reader:
        reader.execute("SELECT FROM things")
        set_for_database(dsn, "idle_session_timeout", "100ms")
        ((job,),) = run_sql(dsn, "SELECT id FROM procrastinate_jobs WHERE task_name = 'build'")
        builder = Thread(target=build, args=(job_database, job))
        builder.start()
        eventually(lambda: run_sql(dsn, WAITING_FOR_TABLE) != [])
        eventually(lambda: run_sql(dsn, WAITING_FOR_TABLE) == [])
        reader.rollback()
    builder.join()
    assert [name for (name,) in run_sql(dsn, CONSTRAINED)] == ["a"]
