"""The store: every request reaches the database through it, under fresh structure and rights."""

from __future__ import annotations

import hmac
from collections.abc import Callable
from functools import partial
from typing import TypeVar, cast

from cms.access.policy import Actor
from cms.access.problem_redaction import redaction_for
from cms.config import Config
from cms.database.connections import Database, Fetch, Transaction, single_values
from cms.database.error_mapping import Deadlock, Stale, UnexpectedError
from cms.database.reader import Reader
from cms.database.server_refusals import LockTimeout
from cms.database.statements import statement
from cms.errors import Refused, forbidden, invalid_payload, unavailable
from cms.hashing.passwords import Passwords, limited_hashing, rehearsed
from cms.processes.wait_slots import WaitSlots
from cms.query.language.parse import PageSizes
from cms.schema.model import Version
from cms.store.actors import actor_of, admit, find_actor, own_address
from cms.store.attempts import (
    ATTEMPTS,
    UNLOCKED_ATTEMPTS,
    Attempt,
    StaleRefusal,
    is_unavailable,
    refuse_repeated,
)
from cms.store.context import RequestContext
from cms.store.counters import check_version, lock_version
from cms.store.current_version import current_version
from cms.store.foreign_changes import ForeignChangeMonitor, SnapshotSource
from cms.store.idempotency import (
    Idempotency,
    StoredAnswer,
    find_stored_answer,
    lock_key,
    run_idempotently,
)
from cms.store.identity import Identity
from cms.store.json_path_record import JsonPathRecord
from cms.store.payload_filter import PayloadFilter, no_filter
from cms.store.recent_writers import RecentWriters
from cms.store.refusals import changing_structure, with_inquiry
from cms.store.replica import Behind, Replica
from cms.store.snapshot import Snapshot, Snapshots, snapshot_at
from cms.store.table_wait import TableWait
from cms.store.write_plan import TransactionWork, WritePlan, transaction_plan

T = TypeVar("T")


class Store:
    """The database of one application, with its process's snapshot of the structure."""

    def __init__(
        self,
        config: Config,
        database: Database | None = None,
        *,
        writers: RecentWriters | None = None,
        secret: str = "",
        wait_slots: WaitSlots | None = None,
    ) -> None:
        self.database = database or Database(config)
        self.passwords = Passwords(
            config.hash_parameters,
            other_prefixes=partial(_other_prefixes, self.database),
            wait_slots=wait_slots,
        )
        self.writers = writers
        """Callers who must not read from the replica, where there is one."""
        self.cursor_secret = hmac.digest(secret.encode(), b"cursors", "sha256")
        self.json_path_record = JsonPathRecord(self.database)
        self.page = PageSizes(config.query_limit_default, config.query_limit_max)
        self.depth = config.max_relational_depth
        self.max_nested_rows = config.max_nested_rows
        self.max_answer_size = config.max_answer_size
        self.statement_timeout = config.db_statement_timeout
        self.payload_filter: PayloadFilter = no_filter
        # Each connection may hold a prepared plan that is out of date, which costs an attempt.
        self._attempts = ATTEMPTS + config.database_pool_size
        on_structure_change = self.database.discard_prepared
        # A replica may lag behind: structure and rights are those of the primary.
        self._reader = self.database.reader
        self._replica: Replica | None = None
        if self.database.has_replica:
            self._reader = self.database.primary
            self._replica = Replica(self.database, writers, on_structure_change=on_structure_change)
        self.snapshots = Snapshots(self._reader.fetch, on_structure_change=on_structure_change)
        sources = [SnapshotSource(self.snapshots, self._reader.fetch)]
        if self._replica:
            # Last: the counter can be moved on the primary only, and a replica may lag.
            sources.append(SnapshotSource(self._replica.snapshots, self.database.fetch))
        self._monitor = ForeignChangeMonitor(self.database, sources)

    def primary_snapshot(self, flows: int) -> Snapshot:
        """Return a snapshot of the primary with at least this counter of flows."""
        snapshot = self.snapshots.current()
        if snapshot.version.flows < flows:
            snapshot = self.snapshots.refresh(snapshot)
        return snapshot

    def run_read(self, identity: Identity, work: Callable[[RequestContext], T]) -> T:
        """Do a read, and repeat it if structure or rights have changed meanwhile.

        After `ATTEMPTS` it is done under a lock on the counters, which ends such changes.
        """
        if self._replica:
            self._monitor.check()
            try:
                return self._replica.read(identity, work)
            except Behind:
                return self._read_primary(identity, work)
        return self._read(identity, work, self._reader)

    def _read(self, identity: Identity, work: Callable[[RequestContext], T], reader: Reader) -> T:
        attempt_read = partial(self._attempt_read, identity, work, reader)
        return self._retry(reader.fetch, attempt_read, unlocked_attempts=ATTEMPTS)

    def _attempt_read(
        self,
        identity: Identity,
        work: Callable[[RequestContext], T],
        reader: Reader,
        attempt: Attempt,
    ) -> T:
        snapshot = attempt.snapshot
        if not attempt.holds_version:
            return work(_context(snapshot, identity, reader.fetch, reader))
        with self.database.transaction() as transaction:
            snapshot = lock_version(transaction, snapshot, "share_version")
            # The work still reads by its reader: the transaction is there for its lock alone.
            return work(_context(snapshot, identity, reader.fetch, reader))

    def run_write(
        self,
        identity: Identity,
        plan: Callable[[RequestContext], WritePlan[T]],
        *,
        idempotency: Idempotency | None = None,
        changes_rights: bool = False,
    ) -> T:
        """Plan a write outside any transaction, then do it in one.

        Planning and writing are repeated if structure or rights have changed meanwhile. The first
        attempts do not delay changes of structure or rights. Later ones lock the counters, so that
        a write is done however many such changes come. After a deadlock, attempts take turns with
        all others that had one.

        With `idempotency` a call that was answered before gets the same answer and writes nothing.
        A write that `changes_rights` takes an exclusive lock on the counters before it writes: two
        writes that shared the lock could not move the counters, and would wait for each other.
        """
        unlocked_attempts = 0 if changes_rights else UNLOCKED_ATTEMPTS
        lock_statement = "lock_version" if changes_rights else "share_version"
        attempt_write = partial(
            self._attempt_write,
            identity,
            plan,
            idempotency=idempotency,
            lock_statement=lock_statement,
        )
        return self._retry(
            self.database.fetch_primary, attempt_write, unlocked_attempts=unlocked_attempts
        )

    def _attempt_write(
        self,
        identity: Identity,
        plan: Callable[[RequestContext], WritePlan[T]],
        attempt: Attempt,
        *,
        idempotency: Idempotency | None,
        lock_statement: str,
    ) -> T:
        # The bound on hashed values is that of one attempt: a repeated one hashes them again.
        with limited_hashing(self.passwords):
            # Each of these needs a lock before the plan is made. All other writes are planned
            # before they take a connection for their transaction.
            if not (attempt.holds_version or idempotency or attempt.deadlocked):
                return self._write(identity, plan, attempt.snapshot)
            return self._write_in_transaction(
                identity, plan, attempt, idempotency=idempotency, lock_statement=lock_statement
            )

    def run_in_transaction(
        self,
        identity: Identity,
        work: TransactionWork[T],
        *,
        idempotency: Idempotency | None = None,
    ) -> T:
        """Do the work of a write that needs no plan, as `run_write` does."""
        return self.run_write(identity, partial(transaction_plan, work), idempotency=idempotency)

    def _retry(self, fetch: Fetch, work: Callable[[Attempt], T], *, unlocked_attempts: int) -> T:
        """Do the work, and repeat it as long as it is refused under old structure or rights.

        A refusal, by the service or by PostgreSQL, is raised only if the counters are still those
        of the plan. They only grow: if they are the same after the work was undone, they have been
        the same all the time. After `unlocked_attempts` the work locks the counters itself.
        """
        self._monitor.check()
        last_error: StaleRefusal | None = None
        deadlocked = False
        for number in range(self._attempts):
            snapshot = self.snapshots.current()
            holds_version = number >= unlocked_attempts
            try:
                return work(Attempt(snapshot, holds_version, deadlocked))
            except Deadlock:
                # A deadlock says nothing of the snapshot, which stays.
                deadlocked = True
                continue
            except Stale as stale:
                # Raised by the statement itself, so that there is no need to ask for the counters.
                last_error = refuse_repeated(stale, snapshot, last_error)
            except (Refused, UnexpectedError) as refusal:
                # The counters are asked last: under a lock they are known, and a database that does
                # not answer must not be asked.
                is_final = (
                    holds_version
                    or is_unavailable(refusal)
                    or current_version(fetch) == snapshot.version
                )
                if is_final and isinstance(refusal, Refused) and refusal.inquiry:
                    raise with_inquiry(refusal, self.database.run_primary) from refusal
                if is_final:
                    raise
            self.snapshots.refresh(snapshot)
        raise changing_structure()

    def _write(
        self, identity: Identity, plan: Callable[[RequestContext], WritePlan[T]], snapshot: Snapshot
    ) -> T:
        context = _context(snapshot, identity, self.database.fetch_primary)
        # Errors reveal nothing that is hidden from the caller.
        with redaction_for(context.actor.policy):
            write = rehearsed(partial(plan, context))
            if write.run_alone is not None:
                return write.run_alone()
        with self.database.transaction() as transaction:
            # The plan was made before the transaction began.
            check_version(snapshot, current_version(transaction.execute))
            with redaction_for(context.actor.policy):
                return write.run(transaction)

    def _write_in_transaction(
        self,
        identity: Identity,
        plan: Callable[[RequestContext], WritePlan[T]],
        attempt: Attempt,
        *,
        idempotency: Idempotency | None,
        lock_statement: str,
    ) -> T:
        with self.database.transaction() as transaction:
            # Every write takes its locks in this order, so that they cause no deadlock.
            lock_key(transaction, identity.name, idempotency)
            if attempt.deadlocked:
                transaction.execute(statement("wait_for_others"))
            snapshot = attempt.snapshot
            if attempt.holds_version:
                snapshot = lock_version(transaction, snapshot, lock_statement)
            else:
                check_version(snapshot, current_version(transaction.execute))
            context = _context(snapshot, identity, transaction.execute)
            work = partial(_plan_and_run, plan, context, transaction)
            return run_idempotently(transaction, identity.name, idempotency, work)

    def run_structure_change(
        self,
        identity: Identity,
        work: TransactionWork[T],
        *,
        idempotency: Idempotency | None = None,
    ) -> T:
        """Change the structure in one transaction, as an administrator.

        The counter moves first: that locks its row, so that changes of structure take turns on all
        machines, and each is validated against the result of the one before. With the commit every
        process learns of the change. After a deadlock with writes of items the change is repeated,
        and as long as others use its tables.
        """
        # Before the lock: callers without the right must not hold up those who have it.
        self._read_primary(identity, lambda context: require_admin(context.actor))
        wait = TableWait(self.database, self.statement_timeout.total_seconds())
        deadlocks = 0
        while deadlocks < ATTEMPTS:
            try:
                with self.database.transaction() as transaction:
                    lock_key(transaction, identity.name, idempotency)
                    # A stored answer is found before the counter moves: it changes nothing.
                    if idempotency:
                        stored = find_stored_answer(transaction, identity.name, idempotency)
                        if stored:
                            return cast(T, stored.answer)
                    context = _lock_structure(transaction, identity, before=self.snapshots.loaded)
                    in_context = partial(work, wait.limited(transaction), context)
                    return run_idempotently(transaction, identity.name, idempotency, in_context)
            except LockTimeout as timeout:
                wait.let_others_pass(timeout)
            except Deadlock:
                deadlocks += 1
            except Stale as conflict:
                # Under the lock the structure is current: the change itself reports missing names.
                raise invalid_payload(f"The database refuses it: {conflict}") from None
        raise unavailable("database", "It is busy with the items of this collection")

    def adopt(self, snapshot: Snapshot) -> None:
        """Go on with the structure that a change of it has left, once that is committed."""
        self.snapshots.adopt(snapshot)

    def run_unversioned_read(self, identity: Identity, work: Callable[[RequestContext], T]) -> T:
        """Do a read whose statements do not select the counters, and compare these after it."""
        return self.run_read(identity, partial(_work_and_check_version, work))

    def run_primary_read(self, identity: Identity, work: Callable[[RequestContext], T]) -> T:
        """Do a read that a write depends on, on the primary: a replica may lag behind."""
        return self._read_primary(identity, partial(_work_and_check_version, work))

    def _read_primary(self, identity: Identity, work: Callable[[RequestContext], T]) -> T:
        return self._read(identity, work, self.database.primary)

    def stored_answer(
        self, identity: Identity, idempotency: Idempotency | None
    ) -> StoredAnswer | None:
        """Return the stored answer of a call, for calls that cost much before they write."""
        if idempotency is None:
            return None
        return self.run_in_transaction(
            identity, partial(_lock_and_find_answer, identity.name, idempotency)
        )

    def reload_structure(
        self, identity: Identity, *, idempotency: Idempotency | None = None
    ) -> None:
        """Have every process load the structure again, for changes by other programs."""
        # A change that changes nothing still moves the counter.
        self.run_structure_change(
            identity, lambda transaction, context: None, idempotency=idempotency
        )

    def close(self) -> None:
        self.database.close()


def _context(
    snapshot: Snapshot, identity: Identity, fetch: Fetch, reader: Reader | None = None
) -> RequestContext:
    """Return the context of a caller; raises `Refused` when it may not act."""
    actor = find_actor(snapshot, identity, fetch)
    return RequestContext(snapshot, actor, fetch, reader, own_address(identity))


def _work_and_check_version(work: Callable[[RequestContext], T], context: RequestContext) -> T:
    """Do work whose statements do not select the counters, and compare these after it."""
    answer = work(context)
    check_version(context.snapshot, current_version(context.fetch))
    return answer


def _lock_and_find_answer(
    caller: str, idempotency: Idempotency, transaction: Transaction, context: RequestContext
) -> StoredAnswer | None:
    # A call with the same key may be under way: its answer is stored once the lock is free.
    lock_key(transaction, caller, idempotency)
    return find_stored_answer(transaction, caller, idempotency)


def _plan_and_run(
    plan: Callable[[RequestContext], WritePlan[T]],
    context: RequestContext,
    transaction: Transaction,
) -> T:
    """Plan a write in its transaction and do it; errors reveal nothing that is hidden."""
    with redaction_for(context.actor.policy):
        return rehearsed(partial(plan, context)).run(transaction)


def require_admin(actor: Actor) -> None:
    """Raise `Refused` FORBIDDEN for anybody but an administrator."""
    if not actor.policy.is_admin:
        raise forbidden()


def _lock_structure(
    transaction: Transaction, identity: Identity, *, before: Snapshot | None
) -> RequestContext:
    """Take the lock that orders changes of structure, and return the context of one."""
    version = Version(*transaction.execute(statement("advance_structure"))[0])
    # The actor is read anew: the rights in the cache of a snapshot may be older than the lock.
    rows = transaction.execute(statement("find_actor"), identity.caller)
    # At READ COMMITTED, statements after the lock see what the change before has committed.
    snapshot = snapshot_at(transaction, version, before=before)
    actor = admit(actor_of(snapshot, identity, rows), identity)
    # Once more, now that rights cannot change any more.
    require_admin(actor)
    return RequestContext(snapshot, actor, transaction.execute, ip=own_address(identity))


def _other_prefixes(database: Database, own_prefix: str) -> list[str]:
    rows = database.fetch_primary(statement("find_other_hash_prefixes"), (own_prefix + "$",))
    return single_values(rows)
