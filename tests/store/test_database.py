"""Transactions of the command line are whole, as those of the pools are."""

from __future__ import annotations

from dataclasses import replace

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from cms.config import Config
from cms.store.database import direct_transaction, session


class Broken(Exception):
    pass


def put_and_break(dsn: str) -> None:
    with direct_transaction(dsn) as transaction:
        transaction.execute("INSERT INTO kept (number) VALUES ($1::integer)", (1,))
        raise Broken


def test_a_direct_transaction_that_breaks_off_leaves_nothing(empty_dsn: str) -> None:
    with direct_transaction(empty_dsn) as transaction:
        transaction.execute("CREATE TABLE kept (number integer)")
    with pytest.raises(Broken):
        put_and_break(empty_dsn)
    with direct_transaction(empty_dsn) as transaction:
        assert transaction.execute("SELECT count(*) FROM kept") == [(0,)]


def test_a_session_does_not_hang_on_the_settings_of_its_server(settings: Config, empty_dsn: str) -> None:
    told = make_conninfo(empty_dsn, options="-c jit=on -c timezone=Asia/Tokyo -c datestyle=German")
    made = session(replace(settings, database_url=told))
    with psycopg.connect(made["conninfo"], options=made["kwargs"]["options"]) as connection:
        found = connection.execute("SELECT current_setting('jit'), now()::text ~ '^[0-9]{4}-.*[+]00$'").fetchone()
    assert found == ("off", True)
