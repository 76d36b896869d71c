"""Statements straight to libpq: prepared once, and never lost, whatever happens beside them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace

import psycopg
import pytest

from cms.config import Config
from cms.database import wire
from cms.database.connections import Database, Transaction
from cms.database.error_mapping import UnexpectedError
from cms.errors import Refused
from cms.fragment import text

STATEMENT = "SELECT $1::text, $2::integer[], $3::bytea, $4::boolean, NULL"


@pytest.fixture
def database(settings: Config, make_database: Callable[..., str]) -> Iterator[Database]:
    database = Database(replace(settings, database_url=make_database(), database_pool_size=1))
    yield database
    database.close()


def prepared(database: Database) -> list[str]:
    with database.transaction() as transaction:
        return [
            name
            for (name,) in transaction.execute(
                "SELECT name FROM pg_prepared_statements ORDER BY prepare_time"
            )
        ]


def fail_and_go_on(database: Database, transaction: Transaction) -> None:
    with suppress(Refused):
        transaction.execute("SELECT 'x'::integer")
    database.discard_prepared()
    transaction.execute("SELECT 1")


def end_and_read(transaction: Transaction) -> None:
    end_of(transaction)()
    transaction.execute("SELECT 1")


def end_meanwhile(transaction: Transaction) -> None:
    transaction.execute("SELECT pg_sleep(10)", while_waiting=end_of(transaction))


def end_of(transaction: Transaction) -> Callable[[], None]:
    """Return what ends a connection from outside."""
    (pid,) = transaction.execute("SELECT pg_backend_pid()")[0]
    dsn = transaction.connection.info.dsn

    def end() -> None:
        with psycopg.connect(dsn, autocommit=True) as other:
            other.execute("SELECT pg_terminate_backend(%s, 60000)", (pid,))

    return end


def test_values_arrive_as_they_are(database: Database) -> None:
    values = ['a"b\\c', ["1", None, "3"], b"\x00\xff", True]
    for _ in range(3):
        assert database.fetch_primary(STATEMENT, values) == [
            ('a"b\\c', [1, None, 3], b"\x00\xff", True, None)
        ]
    nasty = ['"', "\\", "{}", ",", "NULL", "", "é\n"]
    assert database.fetch_primary("SELECT $1::text[]", [nasty]) == [(nasty,)]


def test_what_is_prepared_survives_what_psycopg_gives_up_after(database: Database) -> None:
    database.fetch_primary(STATEMENT, ["a", [], b"", False])
    for _ in range(10):
        with database.transaction() as transaction:
            transaction.execute_ddl(text("CREATE TEMPORARY TABLE passing ()"))
            transaction.execute_ddl(text("DROP TABLE passing"))
        with pytest.raises(ZeroDivisionError), database.transaction():
            raise ZeroDivisionError
    assert database.fetch_primary(STATEMENT, ["a", [], b"", False])[0][0] == "a"
    assert len(prepared(database)) == 2


def test_no_more_is_prepared_than_is_kept(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wire, "MAX_PREPARED_STATEMENTS", 5)
    for number in range(20):
        assert database.fetch_primary(f"SELECT {number}") == [(number,)]
    assert len(prepared(database)) == 5
    assert database.fetch_primary("SELECT 0") == [(0,)]


def test_what_is_used_stays_prepared(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wire, "MAX_PREPARED_STATEMENTS", 5)
    database.fetch_primary("SELECT 'used'")
    first = prepared(database)[0]
    for number in range(20):
        database.fetch_primary(f"SELECT {number}")
        database.fetch_primary("SELECT 'used'")
    assert first in prepared(database)


def test_statements_of_a_structure_that_is_gone_are_given_up(database: Database) -> None:
    for number in range(20):
        database.fetch_primary(f"SELECT {number}")
    assert len(prepared(database)) == 21
    database.discard_prepared()
    assert len(prepared(database)) == 1
    assert database.fetch_primary("SELECT 7") == [(7,)]
    with database.transaction() as transaction:
        database.discard_prepared()
        assert transaction.execute("SELECT 8") == [(8,)]
    assert len(prepared(database)) == 2


def test_statements_that_a_change_does_not_concern_stay_prepared(database: Database) -> None:
    for number in range(3):
        database.fetch_primary(f"SELECT {number}")
    first, second, _ = prepared(database)[:3]
    database.discard_prepared({"SELECT 0", "SELECT 1", "never prepared"})
    assert prepared(database)[:2] == [first, second]
    assert database.fetch_primary("SELECT 1") == [(1,)]
    assert database.fetch_primary("SELECT 2") == [(2,)]
    assert len(prepared(database)) == 4
    database.discard_prepared({"SELECT 2"})
    assert len(prepared(database)) == 2


def test_a_statement_that_fails_stays_prepared_and_is_not_prepared_again(
    database: Database,
) -> None:
    with database.transaction() as transaction:
        transaction.execute("CREATE TABLE things (a integer UNIQUE)")
    for _ in range(20):
        with suppress(Refused):
            database.fetch_primary("INSERT INTO things VALUES (1)")
        with suppress(Refused), database.transaction() as transaction:
            transaction.execute("INSERT INTO things VALUES ($1::integer)", (1,))
    assert len(prepared(database)) < 10


def test_what_fails_while_statements_are_given_up_is_reported_as_it_is(database: Database) -> None:
    """Where a transaction has failed nothing is prepared, nor given up; the next one starts
    over.
    """
    with pytest.raises(UnexpectedError, match="aborted"), database.transaction() as transaction:
        fail_and_go_on(database, transaction)
    assert database.fetch_primary("SELECT 1") == [(1,)]
    assert len(prepared(database)) == 2


def test_statements_that_somebody_else_has_given_up_are_prepared_again(database: Database) -> None:
    assert database.fetch_primary("SELECT 1") == [(1,)]
    with database.transaction() as transaction:
        transaction.connection.execute("DEALLOCATE ALL")
    with suppress(Refused, UnexpectedError):
        database.fetch_primary("SELECT 1")
    assert database.fetch_primary("SELECT 1") == [(1,)]


def test_a_lost_connection_is_reported_and_replaced(database: Database) -> None:
    with pytest.raises(Refused) as refused, database.transaction() as transaction:
        end_and_read(transaction)
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


@pytest.mark.release
def test_something_else_is_done_while_the_database_works(
    database: Database, settings: Config
) -> None:
    """However much is sent: a statement that came whole is under way
    before its answer is waited for.
    """
    seen: list[str] = []
    with database.transaction() as transaction:
        (pid,) = transaction.execute("SELECT pg_backend_pid()")[0]
        dsn = transaction.connection.info.dsn

        def look() -> None:
            with psycopg.connect(dsn, autocommit=True) as other:
                for _ in range(1_000):
                    (statement,) = other.execute(
                        "SELECT query FROM pg_stat_activity WHERE pid = %s", (pid,)
                    ).fetchone() or ("",)
                    if "pg_sleep" in statement:
                        seen.append(statement)
                        return

        sql = "SELECT length($1::text), pg_sleep(1) IS NULL"
        assert transaction.execute(sql, ["a" * 5_000_000], while_waiting=look) == [
            (5_000_000, False)
        ]
    assert seen == [sql]


def test_what_fails_meanwhile_leaves_the_connection_in_order(database: Database) -> None:
    def fail() -> None:
        raise ZeroDivisionError

    with database.transaction() as transaction:
        with pytest.raises(ZeroDivisionError), transaction.savepoint():
            transaction.execute("SELECT 1", while_waiting=fail)
        assert transaction.execute("SELECT 2") == [(2,)]
        with pytest.raises(Refused), transaction.savepoint():
            transaction.execute("SELECT 'x'::integer", while_waiting=lambda: None)
        assert transaction.execute("SELECT 3", while_waiting=lambda: None) == [(3,)]


def test_a_connection_lost_meanwhile_is_reported(database: Database) -> None:
    with pytest.raises(Refused) as refused, database.transaction() as transaction:
        end_meanwhile(transaction)
    assert refused.value.status == 503
    assert database.fetch_primary("SELECT 1") == [(1,)]


def test_other_threads_run_while_it_waits(database: Database) -> None:
    with (
        database.transaction() as transaction,
        psycopg.connect(transaction.connection.info.dsn) as other,
    ):
        other.execute("SELECT pg_advisory_xact_lock(1)")
        release = threading.Timer(0.1, other.rollback)
        release.start()
        assert transaction.execute(
            "SELECT pg_advisory_xact_lock(1) IS NULL", while_waiting=lambda: None
        ) == [(False,)]
        release.join()


def test_statements_of_one_round_trip_answer_in_their_order(database: Database) -> None:
    calls = [wire.Call("SELECT $1::text", [str(number)]) for number in range(120)]
    assert database.reader.fetch_all(calls) == [[(str(number),)] for number in range(120)]


def test_an_error_leaves_the_other_statements_of_a_round_trip_as_they_are(
    database: Database,
) -> None:
    calls = [
        wire.Call("SELECT 1", []),
        wire.Call("SELECT $1::integer", ["x"]),
        wire.Call("SELECT 3", []),
    ]
    first, second, third = database.reader.fetch_all(calls)
    assert (first, third) == ([(1,)], [(3,)])
    assert isinstance(second, Refused)
    assert database.fetch("SELECT 4") == [(4,)]


@pytest.mark.release
def test_a_round_trip_carries_more_than_the_sockets_hold(database: Database) -> None:
    text = "x" * 10_000_000
    assert database.reader.fetch_all([wire.Call("SELECT $1::text", [text])] * 5) == [[(text,)]] * 5


def test_rows_that_came_in_portions_before_are_whole_in_a_round_trip(database: Database) -> None:
    rows = "SELECT generate_series(1, 5)"
    database.reader.fetch(rows, chunking=wire.Chunking(2, 10_000, 10_000))
    assert database.reader.fetch_all([wire.Call(rows, [])]) == [[(n,) for n in range(1, 6)]]


def test_a_connection_that_ends_in_a_round_trip_is_replaced(database: Database) -> None:
    calls = [
        wire.Call("SELECT pg_terminate_backend(pg_backend_pid())", []),
        wire.Call("SELECT 1", []),
    ]
    with suppress(Refused):
        database.reader.fetch_all(calls)
    assert database.reader.fetch_all([wire.Call("SELECT 1", [])]) == [[(1,)]]
