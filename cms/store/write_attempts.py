"""Writes: the attempts at one, each in a transaction or in one statement, and its stored answer."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Generic, NamedTuple, Protocol, TypeVar, cast

from cms.access.policy import Actor
from cms.access.problem_redaction import redacted
from cms.database.connections import Fetch, Transaction
from cms.database.error_mapping import Deadlock, Stale
from cms.database.server_refusals import LockTimeout
from cms.database.statements import statement
from cms.errors import Refused, forbidden, invalid_payload, unavailable
from cms.hashing.passwords import Passwords, limited_hashing
from cms.schema.model import Version
from cms.store.actors import actor_of, admit, find_actor
from cms.store.attempts import ATTEMPTS, Attempt, Retries
from cms.store.context import RequestContext
from cms.store.counters import check_version, lock_version
from cms.store.current_version import current_version
from cms.store.idempotency import Idempotency, find_stored_answer, lock_key, store_answer
from cms.store.identity import Identity
from cms.store.refusals import without_success
from cms.store.snapshot import Snapshot, snapshot_after_advance
from cms.store.table_wait import TableWait

T = TypeVar("T")

UNLOCKED_ATTEMPTS = 2
"""Attempts at a write that do not lock the counters; later ones do."""


@dataclass
class Write(Generic[T]):
    """A write: the attempts at it, and what it answers.

        write: Write[bytes] = store.write(identity, idempotency=idempotency)
        for attempt in write:
            with attempt as context:
                write.answer = create(attempt.begin_transaction(), context, …)
        return write.answer

    There is no attempt where the call was answered before, and `answer` is that answer: the bytes
    of a body, None for none, or the value of `data`. An answer of work that raises is not stored.
    """

    retries: Retries
    passwords: Passwords
    identity: Identity
    idempotency: Idempotency | None = None
    changes_rights: bool = False
    answer: T = cast(T, None)  # noqa: RUF009 - a constant
    is_repeated: bool = False
    """Whether the call was answered before, so that nothing is written."""

    def __iter__(self) -> Iterator[WriteAttempt]:
        # Each connection may hold a prepared plan that is out of date, which costs an attempt.
        unlocked = 0 if self.changes_rights else UNLOCKED_ATTEMPTS
        for number in range(ATTEMPTS + self.retries.database.pool_size):
            attempt = WriteAttempt(
                self, self.retries.snapshots.current(), locked=number >= unlocked
            )
            if attempt.begin():
                yield attempt
            if attempt.is_done:
                return
        raise without_success(deadlocked=self.retries.deadlocked)

    def is_answered(self, transaction: Transaction) -> bool:
        """Tell whether the call was answered before, under the lock of its key."""
        if self.idempotency is None:
            return False
        stored = find_stored_answer(transaction, self.identity.name, self.idempotency)
        if stored is None:
            return False
        self.answer = cast(T, stored.answer)
        self.is_repeated = True
        return True

    def store_answer(self, transaction: Transaction) -> None:
        """Store the answer of a call that may be sent again."""
        if self.idempotency:
            store_answer(transaction.execute, self.identity.name, self.idempotency, self.answer)


class WriteAttempt(Attempt):
    """An attempt at a write, whose problems reveal nothing that is hidden from the caller.

    The first attempts do not delay changes of structure or rights, and begin their transaction
    only when they write: what comes before holds no connection. Later ones lock the counters, so
    that a write is done however many such changes come. After a deadlock, attempts take turns with
    all others that had one.
    """

    __slots__ = ("_transaction", "_write", "has_begun")

    def __init__(self, write: Write[T], snapshot: Snapshot, *, locked: bool) -> None:
        super().__init__(write.retries, write.identity, snapshot, locked=locked)
        self._write = write
        self._transaction: Transaction | None = None
        self.has_begun = False
        """Whether its transaction has begun."""

    def begin_transaction(self) -> Transaction:
        """Return the transaction of the attempt, begun at the first call.

        Raises `Stale` where structure or rights have changed since the attempt began.
        """
        if self._transaction is None:
            self._transaction = self._stack.enter_context(self._retries.database.transaction())
            self.has_begun = True
            check_version(self._snapshot, current_version(self._transaction.execute))
        return self._transaction

    def _open(self) -> RequestContext | None:
        write = self._write
        # The bound on hashed values is that of one attempt: a repeated one hashes them again.
        self._stack.enter_context(limited_hashing(write.passwords))
        # Each of these needs a lock before anything is read.
        if not (self._locked or write.idempotency or self._retries.deadlocked):
            return self._new_context(self._retries.database.fetch_primary)
        transaction = self._stack.enter_context(self._retries.database.transaction())
        # Every write takes its locks in this order, so that they cause no deadlock.
        lock_key(transaction, self.identity.name, write.idempotency)
        if self._retries.deadlocked:
            transaction.execute(statement("wait_for_others"))
        if self._locked:
            # Two writes that shared the lock could not move the counters, and would wait for each
            # other: one that changes rights takes it alone.
            lock = "lock_version" if write.changes_rights else "share_version"
            self._snapshot = lock_version(transaction, self._snapshot, lock)
        else:
            check_version(self._snapshot, current_version(transaction.execute))
        self._transaction = transaction
        self.has_begun = True
        context = self._new_context(transaction.execute)
        return None if write.is_answered(transaction) else context

    def _new_context(self, fetch: Fetch) -> RequestContext:
        actor = find_actor(self._snapshot, self.identity, fetch)
        return RequestContext(self._snapshot, actor, fetch, identity=self.identity)

    def _finish(self) -> None:
        if self.context and self._transaction:
            self._write.store_answer(self._transaction)

    def _retry_after(self, failure: Exception) -> None:
        if self.context and isinstance(failure, Refused):
            failure = redacted(failure, self.context.actor.policy)
        super()._retry_after(failure)


class TransactionSource(Protocol):
    """Begins the transaction of a write; without one a single statement may do the write."""

    @property
    def has_begun(self) -> bool: ...

    def begin_transaction(self) -> Transaction: ...


class PartOfTransaction(NamedTuple):
    """Stands for the attempt of a write within a transaction that others have begun."""

    transaction: Transaction
    has_begun: bool = True

    def begin_transaction(self) -> Transaction:
        return self.transaction


class StructureChange(Write[T]):
    """A change of the structure in one transaction, by an administrator.

    The counter moves first: that locks its row, so that changes of structure take turns on all
    machines, and each is validated against the result of the one before. With the commit every
    process learns of the change. After a deadlock with writes of items the change is repeated,
    and as long as others use its tables.
    """

    def __iter__(self) -> Iterator[WriteAttempt]:
        wait = TableWait(self.retries.database)
        deadlocks = 0
        while deadlocks < ATTEMPTS:
            attempt = _StructureAttempt(self, wait)
            if attempt.begin():
                yield attempt
            if attempt.is_done:
                return
            deadlocks += attempt.deadlocked
        raise unavailable("database", "It is busy with the items of this collection")


class _StructureAttempt(WriteAttempt):
    """An attempt at a change of structure, whose transaction waits for tables a moment only."""

    __slots__ = ("_wait", "deadlocked")

    def __init__(self, change: StructureChange[T], wait: TableWait) -> None:
        super().__init__(change, change.retries.snapshots.current(), locked=True)
        self._wait = wait
        self.deadlocked = False

    def _open(self) -> RequestContext | None:
        transaction = self._stack.enter_context(self._retries.database.transaction())
        lock_key(transaction, self.identity.name, self._write.idempotency)
        # A stored answer is found before the counter moves: it changes nothing.
        if self._write.is_answered(transaction):
            return None
        context = _lock_structure(transaction, self.identity, before=self._snapshot)
        self._transaction = self._wait.limited(transaction)
        self.has_begun = True
        return context

    def _retry_after(self, failure: Exception) -> None:
        if isinstance(failure, LockTimeout):
            self._wait.let_others_pass(failure)
        elif isinstance(failure, Deadlock):
            self.deadlocked = True
        elif isinstance(failure, Stale):
            # Under the lock the structure is current: the change itself reports missing names.
            raise invalid_payload(f"The database refuses it: {failure}") from None
        else:
            raise failure


def require_admin(actor: Actor) -> None:
    """Raise `Refused` FORBIDDEN for anybody but an administrator."""
    if not actor.policy.is_admin:
        raise forbidden()


def _lock_structure(
    transaction: Transaction, identity: Identity, *, before: Snapshot
) -> RequestContext:
    """Take the lock that orders changes of structure, and return the context of one."""
    version = Version(*transaction.execute(statement("advance_structure"))[0])
    # The actor is read anew: the rights in the cache of a snapshot may be older than the lock.
    rows = transaction.execute(statement("find_actor"), identity.caller)
    # At READ COMMITTED, statements after the lock see what the change before has committed.
    snapshot = snapshot_after_advance(transaction, version, before=before)
    actor = admit(actor_of(snapshot, identity, rows), identity)
    # Once more, now that rights cannot change any more.
    require_admin(actor)
    return RequestContext(snapshot, actor, transaction.execute, identity=identity)
