"""The statements that the service sends, while a test looks."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import pytest

from cms.database.connections import Transaction
from cms.database.statement_meter import StatementMeter


@contextmanager
def counted(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """Yield the statements of all connections of the service, as they run."""
    seen: list[str] = []
    measured = StatementMeter.measured

    def spy(meter: StatementMeter, *texts: str) -> AbstractContextManager[None]:
        seen.extend(texts)
        return measured(meter, *texts)

    with monkeypatch.context() as patch:
        patch.setattr(StatementMeter, "measured", spy)
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
