"""The statements that the service sends, while a test looks or makes them fail."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from threading import get_ident
from typing import Any

import pytest

from cms.database.connections import Database, Row, Transaction
from cms.database.error_mapping import Deadlock
from cms.database.statement_meter import StatementMeter


@contextmanager
def counted(
    monkeypatch: pytest.MonkeyPatch, *, of_all_threads: bool = False
) -> Iterator[list[str]]:
    """Yield the statements of this thread's requests, as they run, or those of all threads.

    An index that an earlier test has asked for may still be built by a thread beside.
    """
    seen: list[str] = []
    note = StatementMeter.note
    own = get_ident()

    def spy(
        meter: StatementMeter,
        texts: Sequence[str],
        seconds: float,
        error: BaseException | None = None,
    ) -> None:
        if of_all_threads or get_ident() == own:
            seen.extend(texts)
        note(meter, texts, seconds, error)

    with monkeypatch.context() as patch:
        patch.setattr(StatementMeter, "note", spy)
        yield seen


@contextmanager
def counted_in_transactions(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """Yield the statements that transactions run, as they run them."""
    seen: list[str] = []

    def spied(method: Callable[..., Any]) -> Callable[..., Any]:
        def spy(transaction: Transaction, text: str, *values: Any, **options: Any) -> Any:
            seen.append(text)
            return method(transaction, text, *values, **options)

        return spy

    with monkeypatch.context() as patch:
        for name in ("execute", "read"):
            patch.setattr(Transaction, name, spied(getattr(Transaction, name)))
        yield seen


def record_primary_fetches(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return a list that gets the statements which the service fetches outside of transactions."""
    statements: list[str] = []
    fetch = Database.fetch_primary

    def recorded(database: Database, text: str, values: Sequence[object] = ()) -> list[Row]:
        statements.append(text)
        return fetch(database, text, values)

    monkeypatch.setattr(Database, "fetch_primary", recorded)
    return statements


def fail_next_transaction(monkeypatch: pytest.MonkeyPatch) -> list[Deadlock]:
    """Let the next transaction end in a deadlock; the list is empty once it has."""
    faults = [Deadlock("deadlock detected")]
    transaction = Database.transaction

    @contextmanager
    def failing(database: Database) -> Iterator[Transaction]:
        with transaction(database) as running:
            yield running
            if faults:
                raise faults.pop()

    monkeypatch.setattr(Database, "transaction", failing)
    return faults
