"""A plan of a write, made outside of any transaction, which the store runs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, NamedTuple, TypeVar

from cms.database.connections import Transaction
from cms.store.context import RequestContext

T = TypeVar("T")


class WritePlan(NamedTuple, Generic[T]):
    """A planned write.

    `run` does it in a transaction, which has compared the counters. `run_alone`, where there is
    one, does all of it in one statement, which compares the counters itself. It must not refuse
    anything after it has written, because refused work may be tried again.
    """

    run: Callable[[Transaction], T]
    run_alone: Callable[[], T] | None = None


TransactionWork = Callable[[Transaction, RequestContext], T]
"""Work in a transaction, with the structure and rights of a context."""


def transaction_plan(work: TransactionWork[T], context: RequestContext) -> WritePlan[T]:
    """Return a write of fixed statements, of which nothing is planned."""
    return WritePlan(lambda transaction: work(transaction, context))
