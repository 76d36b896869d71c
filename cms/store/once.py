"""Calls that may be sent twice: the answer is written with what the call wrote (decisions, section 5)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar, cast

from cms import jsontext
from cms.errors import Problem, Refused
from cms.store.database import Transaction
from cms.store.statements import statement

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Once:
    """A call that is done once for a caller: digests of its key, and of what it asks."""

    key: str
    request: str


def take_turn(transaction: Transaction, caller: str, once: Once | None) -> None:
    """Wait until no other call with the same key is under way; the lock goes with the transaction."""
    if once is not None:
        transaction.execute(statement("lock_idempotency_key"), (caller, once.key))


def done_once(transaction: Transaction, caller: str, once: Once | None, work: Callable[[], T]) -> T:
    """Do the work and keep its answer, or return the answer that is kept.

    An answer is the bytes of a body, None for none, or what stands under `data`. Raises `Refused`
    UNPROCESSABLE_CONTENT when the key came with another request. What raises leaves nothing.
    """
    if once is None:
        return work()
    kept = kept_answer(transaction, caller, once)
    if kept is not None:
        return cast(T, kept.answer)
    answer = work()
    raw = answer if isinstance(answer, bytes | None) else jsontext.dumps(answer)
    values = (caller, once.key, once.request, raw, not isinstance(answer, bytes | None))
    transaction.execute(statement("keep_idempotent_answer"), values)
    return answer


@dataclass(frozen=True, slots=True)
class Kept:
    """The answer of a call that was done before."""

    answer: object


def kept_answer(transaction: Transaction, caller: str, once: Once) -> Kept | None:
    """Return the answer that is kept of a call; raises `Refused` as `done_once` does."""
    rows = transaction.execute(statement("find_idempotent_answer"), (caller, once.key))
    if not rows:
        return None
    request, raw, is_record = rows[0]
    if request != once.request:
        reason = "The Idempotency-Key came with another request before"
        raise Refused(Problem("UNPROCESSABLE_CONTENT", f"{reason}.", {"reason": reason}))
    return Kept(jsontext.ready(raw) if is_record else raw)
