"""What other programs make unique beside the service has one index, and no build that failed."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from functools import partial

import psycopg
import pytest

from cms.config import Config
from cms.database.connections import Database
from cms.structure import indexes
from tests.client import Client
from tests.databases import run_sql
from tests.index_building import (
    NOT_UNIQUE,
    WAITING_FOR_TABLE,
    ask,
    assert_unique,
    behind_each_build,
    make_unique,
    schema,
    work,
)
from tests.waiting import eventually

pytestmark = [pytest.mark.release, pytest.mark.usefixtures("worker")]

BY_HAND = "ALTER TABLE things ADD CONSTRAINT by_hand UNIQUE (a)"


def assert_unique_by_hand(dsn: str) -> None:
    assert_unique(dsn, "a")
    assert run_sql(dsn, "SELECT 1 FROM pg_constraint WHERE conname = 'by_hand'") != []


def test_what_another_program_has_made_unique_since_the_request_gets_no_second_index(
    large: Client, config: Config, job_database: Database, dsn: str
) -> None:
    make_unique(large)
    run_sql(dsn, BY_HAND)
    work(config, job_database)
    assert_unique_by_hand(dsn)


def test_what_another_program_makes_unique_behind_the_build_keeps_that_index_only(
    large: Client,
    config: Config,
    job_database: Database,
    dsn: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    make_unique(large)
    behind_each_build(monkeypatch, partial(run_sql, dsn, BY_HAND))
    work(config, job_database)
    assert_unique_by_hand(dsn)


@pytest.mark.parametrize("large_bytes", [-1, 16 * 2**20])
def test_what_another_program_makes_unique_as_it_is_asked_for_keeps_that_index_only(
    large: Client,
    config: Config,
    job_database: Database,
    dsn: str,
    monkeypatch: pytest.MonkeyPatch,
    large_bytes: int,
) -> None:
    monkeypatch.setattr(indexes, "LARGE_BYTES", large_bytes)
    with ThreadPoolExecutor(1) as executor:
        with psycopg.connect(dsn) as other:
            other.execute(BY_HAND.encode())
            asked = executor.submit(make_unique, large)
            eventually(lambda: run_sql(dsn, WAITING_FOR_TABLE) != [])
        assert asked.result()["is_unique"] is True
    work(config, job_database)
    assert_unique_by_hand(dsn)


def test_values_that_another_program_has_mended_and_made_unique_have_not_failed(
    large: Client, config: Config, job_database: Database, dsn: str
) -> None:
    large.post("/items/things", [{"a": "x"}, {"a": "x"}])
    make_unique(large)
    work(config, job_database)
    assert schema(large)["unique_build"] == NOT_UNIQUE
    run_sql(dsn, f"UPDATE things SET a = id; {BY_HAND}")
    large.post("/utils/cache/clear")
    assert schema(large)["is_unique"] is True
    ask(large, "/fields/things/b")
    work(config, job_database)
    assert_unique_by_hand(dsn)
    run_sql(dsn, "ALTER TABLE things DROP CONSTRAINT by_hand")
    large.post("/utils/cache/clear")
    assert "unique_build" not in schema(large)


def test_a_constraint_of_others_with_the_name_of_the_index_is_no_obstacle(
    large: Client, config: Config, job_database: Database, dsn: str
) -> None:
    run_sql(dsn, "ALTER TABLE things ADD CONSTRAINT things_a_idx CHECK (a <> 'never')")
    make_unique(large)
    work(config, job_database)
    assert schema(large)["is_unique"] is True
    assert_unique(dsn, "a")
