"""Calls that may be sent twice: the answer is stored in the transaction of the call's writes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeVar

from cms import jsontext
from cms.database.connections import Fetch, Transaction
from cms.database.statements import statement
from cms.errors import Problem, Refused

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Idempotency:
    """The identity of a call: the digests of its Idempotency-Key and of its request."""

    key: str
    request: str


def lock_key(transaction: Transaction, caller: str, idempotency: Idempotency | None) -> None:
    """Wait until no other call with the same key runs; the lock ends with the transaction."""
    if idempotency is not None:
        # An advisory lock, because before the first answer there is no row that could be locked.
        transaction.execute(statement("lock_idempotency_key"), (caller, idempotency.key))


def store_answer(fetch: Fetch, caller: str, idempotency: Idempotency, answer: object) -> None:
    """Store the answer of a call."""
    # A body is stored as the bytes that were sent; a record becomes JSON here and a body later.
    is_record = not isinstance(answer, bytes | None)
    raw: object = answer
    if is_record:
        raw = jsontext.dumps(answer)
    values = (caller, idempotency.key, idempotency.request, raw, is_record)
    fetch(statement("store_idempotent_answer"), values)


@dataclass(frozen=True, slots=True)
class StoredAnswer:
    """The answer of a call that was done before; a class, because the answer may be None.

    While the call is under way `is_pending`, and there is none yet.
    """

    answer: object
    is_pending: bool = False


def find_stored_answer(
    transaction: Transaction, caller: str, idempotency: Idempotency
) -> StoredAnswer | None:
    """Return the stored answer of a call, under the lock of its key.

    Raises `Refused` UNPROCESSABLE_CONTENT when the key came with another request.
    """
    return _stored_answer(transaction.execute, caller, idempotency)


def claim_key(
    fetch: Fetch, caller: str, idempotency: Idempotency, seconds: float
) -> StoredAnswer | None:
    """Claim a key for a call whose writes are more than one transaction.

    Return None for a claim, which counts so many seconds if the call never ends. Else return the
    answer of the call before, which may be pending; raises `Refused` as `find_stored_answer` does.
    """
    values = (caller, idempotency.key, idempotency.request, seconds)
    while not fetch(statement("claim_idempotency_key"), values):
        stored = _stored_answer(fetch, caller, idempotency)
        # Released between the two statements, it is claimed once more.
        if stored:
            return stored
    return None


def release_key(fetch: Fetch, caller: str, idempotency: Idempotency) -> None:
    """Give up the claim of a call that has failed."""
    fetch(statement("release_idempotency_key"), (caller, idempotency.key))


def _stored_answer(fetch: Fetch, caller: str, idempotency: Idempotency) -> StoredAnswer | None:
    rows = fetch(statement("find_idempotent_answer"), (caller, idempotency.key))
    if not rows:
        return None
    request, raw, is_record, is_pending = rows[0]
    # A client that uses a key twice by mistake must not get the answer of another call.
    if request != idempotency.request:
        reason = "The Idempotency-Key came with another request before"
        raise Refused(Problem("UNPROCESSABLE_CONTENT", f"{reason}.", {"reason": reason}))
    if is_record and not is_pending:
        return StoredAnswer(jsontext.raw_json(raw))
    return StoredAnswer(raw, is_pending)
