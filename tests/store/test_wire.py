"""Statements straight to libpq: prepared once, and never lost, whatever happens beside them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

import psycopg
import pytest

from cms.config import Config
from cms.errors import Refused
from cms.fragment import text
from cms.store import wire
from cms.store.database import Database, Transaction

ASK = "SELECT $1::text, $2::integer[], $3::bytea, $4::boolean, NULL"


@pytest.fixture
def database(settings: Config, make_database: Callable[..., str]) -> Iterator[Database]:
    found = Database(replace(settings, database_url=make_database(), database_pool_size=1))
    yield found
    found.close()


def prepared(database: Database) -> list[str]:
    with database.transaction() as transaction:
        return [
            name for (name,) in transaction.execute("SELECT name FROM pg_prepared_statements ORDER BY prepare_time")
        ]


def end_and_ask(transaction: Transaction) -> None:
    (pid,) = transaction.execute("SELECT pg_backend_pid()")[0]
    with psycopg.connect(transaction.connection.info.dsn, autocommit=True) as other:
        other.execute("SELECT pg_terminate_backend(%s, 60000)", (pid,))
    transaction.execute("SELECT 1")


def test_values_arrive_as_they_are(database: Database) -> None:
    values = ['a"b\\c', ["1", None, "3"], b"\x00\xff", True]
    for _ in range(3):
        assert database.fetch_primary(ASK, values) == [('a"b\\c', [1, None, 3], b"\x00\xff", True, None)]
    nasty = ['"', "\\", "{}", ",", "NULL", "", "é\n"]
    assert database.fetch_primary("SELECT $1::text[]", [nasty]) == [(nasty,)]


def test_what_is_prepared_survives_what_psycopg_gives_up_after(database: Database) -> None:
    database.fetch_primary(ASK, ["a", [], b"", False])
    for _ in range(10):
        with database.transaction() as transaction:
            transaction.define(text("CREATE TEMPORARY TABLE passing ()"))
            transaction.define(text("DROP TABLE passing"))
        with pytest.raises(ZeroDivisionError), database.transaction():
            raise ZeroDivisionError
    assert database.fetch_primary(ASK, ["a", [], b"", False])[0][0] == "a"
    assert len(prepared(database)) == 2


def test_no_more_is_prepared_than_is_kept(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wire, "STATEMENTS_KEPT", 5)
    for number in range(20):
        assert database.fetch_primary(f"SELECT {number}") == [(number,)]
    assert len(prepared(database)) == 5
    assert database.fetch_primary("SELECT 0") == [(0,)]


def test_a_lost_connection_is_told_and_replaced(database: Database) -> None:
    with pytest.raises(Refused) as refused, database.transaction() as transaction:
        end_and_ask(transaction)
    assert refused.value.status == 503
    assert database.fetch_primary("SELECT 1") == [(1,)]


def test_a_column_of_another_type_is_read_again(database: Database) -> None:
    with database.transaction() as transaction:
        transaction.execute("CREATE TABLE things (a integer)")
        transaction.execute("INSERT INTO things VALUES (1)")
    assert database.fetch_primary("SELECT a FROM things") == [(1,)]
    with database.transaction() as transaction:
        transaction.execute("ALTER TABLE things ALTER a TYPE text")
    assert database.fetch_primary("SELECT a FROM things") == [("1",)]
