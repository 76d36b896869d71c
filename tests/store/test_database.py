"""Transactions of the command line are whole, as those of the pools are."""

from __future__ import annotations

import itertools
from dataclasses import replace
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from cms.config import Config
from cms.database.connections import Database, standalone_transaction
from cms.database.session_setup import pool_arguments
from cms.database.wire import Connection


class Broken(Exception):
    pass


def put_and_break(dsn: str) -> None:
    with standalone_transaction(dsn) as transaction:
        transaction.execute("INSERT INTO kept (number) VALUES ($1::integer)", (1,))
        raise Broken


def test_a_direct_transaction_that_breaks_off_leaves_nothing(empty_dsn: str) -> None:
    with standalone_transaction(empty_dsn) as transaction:
        transaction.execute("CREATE TABLE kept (number integer)")
    with pytest.raises(Broken):
        put_and_break(empty_dsn)
    with standalone_transaction(empty_dsn) as transaction:
        assert transaction.execute("SELECT count(*) FROM kept") == [(0,)]


def test_a_session_does_not_hang_on_the_settings_of_its_server(
    settings: Config, empty_dsn: str
) -> None:
    address = make_conninfo(
        empty_dsn, options="-c jit=on -c timezone=Asia/Tokyo -c datestyle=German"
    )
    arguments = pool_arguments(replace(settings, database_url=address))
    with psycopg.connect(
        arguments["conninfo"], options=arguments["kwargs"]["options"]
    ) as connection:
        row = connection.execute(
            "SELECT current_setting('jit'), now()::text ~ '^[0-9]{4}-.*[+]00$'"
        ).fetchone()
    assert row == ("off", True)


def test_a_server_that_comes_back_is_connected_to_at_once(
    settings: Config, empty_dsn: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The pool that waits longer each time has not tried so often
    when whoever waits for it gives up.
    """
    sockets = Path(str(conninfo_to_dict(empty_dsn)["host"]))
    connect = Connection.connect
    attempts = itertools.count(1)
    away = tmp_path / "sockets"

    def tried(*values: Any, **named: Any) -> Any:
        if next(attempts) == 6:
            away.symlink_to(sockets)
        return connect(*values, **named)

    monkeypatch.setattr(Connection, "connect", tried)
    database = Database(replace(settings, database_url=make_conninfo(empty_dsn, host=str(away))))
    try:
        assert database.fetch_primary("SELECT 1") == [(1,)]
    finally:
        database.close()
