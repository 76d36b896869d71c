"""Transactions of calls on accounts, which come from clients who are not logged in."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TypeVar

from cms.database.connections import Transaction
from cms.database.error_mapping import Deadlock
from cms.store.idempotency import Idempotency, find_stored_answer, lock_key, store_answer
from cms.store.identity import ANONYMOUS, ClientInfo
from cms.store.store import Store

# Not by `Store.write`: these calls have no caller whose rights and snapshot would be
# compared.
DEADLOCK_ATTEMPTS = 3

T = TypeVar("T")


def in_transaction(store: Store, work: Callable[[Transaction], T]) -> T:
    """Do the work in a transaction, and again when a deadlock ended it."""
    # The last attempt is outside the loop: its deadlock is raised.
    for _ in range(DEADLOCK_ATTEMPTS - 1):
        try:
            with store.database.transaction() as transaction:
                return work(transaction)
        except Deadlock:
            continue
    with store.database.transaction() as transaction:
        return work(transaction)


def in_idempotent_transaction(
    store: Store,
    work: Callable[[Transaction], None],
    *,
    client: ClientInfo,
    idempotency: Idempotency | None,
) -> None:
    """Do the work as `in_transaction` does, but only once for an Idempotency-Key."""
    # Nobody is logged in, so the key belongs to the client's address.
    caller = ANONYMOUS.with_client(client).name
    in_transaction(store, partial(_run_idempotently, caller, idempotency, work))


def _run_idempotently(
    caller: str,
    idempotency: Idempotency | None,
    work: Callable[[Transaction], None],
    transaction: Transaction,
) -> None:
    lock_key(transaction, caller, idempotency)
    if idempotency and find_stored_answer(transaction, caller, idempotency):
        return
    work(transaction)
    if idempotency:
        store_answer(transaction.execute, caller, idempotency, None)
