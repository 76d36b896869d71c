"""Transactions of the command line are whole, as those of the pools are."""

from __future__ import annotations

import pytest

from cms.store.database import direct_transaction


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
