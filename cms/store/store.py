"""The store: what every request goes through to reach the database, always under fresh structure and rights."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Generic, TypeVar, cast

from cms import passwords
from cms.access.policy import Actor, Policy
from cms.access.problem_redaction import redacted_problems
from cms.config import Config
from cms.database.connections import Database, Fetch, Transaction
from cms.database.error_mapping import Deadlock, Stale, UndefinedName, UnexpectedError
from cms.database.statements import statement
from cms.errors import STATUS, Refused, forbidden, invalid_payload, unavailable
from cms.query.language.parse import PageSizes
from cms.schema.model import Version
from cms.store.actors import actor_of, admit, find_actor
from cms.store.context import RequestContext
from cms.store.counters import check_version, checked, current_version, held
from cms.store.foreign_changes import ForeignChangeMonitor
from cms.store.idempotency import (
    Idempotency,
    StoredAnswer,
    find_stored_answer,
    lock_key,
    run_idempotently,
)
from cms.store.identity import Identity
from cms.store.refusals import with_inquiry
from cms.store.snapshot import Snapshot, Snapshots, load_snapshot

ATTEMPTS = 5
UNLOCKED_ATTEMPTS = 2

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class WritePlan(Generic[T]):
    """What a write comes to: work in a transaction, or one statement that does as well.

    `in_one_statement` checks the counters itself. Once it has written it refuses nothing: what is refused may be done
    again.
    """

    within: Callable[[Transaction], T]
    in_one_statement: Callable[[], T] | None = None


@dataclass(frozen=True, slots=True)
class Attempt:
    """One attempt at a work: the snapshot that it goes by, whether it has to hold the structure and the rights still,
    and whether one before it ended in a deadlock.
    """

    snapshot: Snapshot
    holds_version: bool
    deadlocked: bool


class Store:
    """The database of one application, with what its process remembers of it."""

    def __init__(self, config: Config) -> None:
        self.database = Database(config)
        self.page = PageSizes(config.query_limit_default, config.query_limit_max)
        self.depth = config.max_relational_depth
        self.max_nested_rows = config.max_nested_rows
        self.max_answer_size = config.max_answer_size
        self.statement_timeout = config.db_statement_timeout
        self._attempts = (
            ATTEMPTS + config.database_pool_size
        )  # each connection may hold a plan that is out of date
        on_structure_change = self.database.discard_prepared
        self.snapshots = Snapshots(self.database.fetch, on_structure_change=on_structure_change)
        # A replica may lag: what is written is checked against the primary's own structure and rights.
        replica = config.database_read_url
        self._primary = (
            Snapshots(self.database.fetch_primary, on_structure_change=on_structure_change)
            if replica
            else self.snapshots
        )
        sources = (
            (self._primary, self.database.fetch_primary),
            (self.snapshots, self.database.fetch),
        )
        self._monitor = ForeignChangeMonitor(self.database, sources)

    def run_read(self, identity: Identity, work: Callable[[RequestContext], T]) -> T:
        """Do the work of a read, again where structure or rights had moved on; in the end it holds them still."""
        return self._read(identity, work, self.snapshots, self.database.fetch)

    def _read(
        self,
        identity: Identity,
        work: Callable[[RequestContext], T],
        snapshots: Snapshots,
        fetch: Fetch,
    ) -> T:
        def look(attempt: Attempt) -> T:
            if not attempt.holds_version:
                return work(
                    RequestContext(
                        attempt.snapshot, find_actor(attempt.snapshot, identity, fetch), fetch
                    )
                )
            with self.database.transaction() as transaction:
                snapshot = held(transaction, attempt.snapshot, "hold_version")
                return work(RequestContext(snapshot, find_actor(snapshot, identity, fetch), fetch))

        # What the primary holds still says nothing of a replica.
        return self._retry(
            snapshots,
            fetch,
            look,
            unlocked_attempts=ATTEMPTS if snapshots is self._primary else None,
        )

    def run_write(
        self,
        identity: Identity,
        plan: Callable[[RequestContext], WritePlan[T]],
        *,
        idempotency: Idempotency | None = None,
        changes_rights: bool = False,
    ) -> T:
        """Plan a write outside any transaction, then do it in one, all of it again where structure or rights had moved.

        The first attempts hold up no change of structure or rights; later ones do, so that a run of them does not
        starve it. After a deadlock the next attempts take turns with all others that had one. With `idempotency` a
        call that was answered before gets that answer, and does nothing. A write that `changes_rights` takes the
        counters for itself before it writes: two that shared them could not move them, and waited for each other.
        """
        unlocked_attempts = 0 if changes_rights else UNLOCKED_ATTEMPTS

        def write(attempt: Attempt) -> T:
            with passwords.limited_hashing():
                if attempt.holds_version or idempotency or attempt.deadlocked:
                    lock_statement = "take_version" if changes_rights else "hold_version"
                    return self._write_in_transaction(
                        attempt,
                        identity,
                        redacting_errors(plan),
                        idempotency=idempotency,
                        lock_statement=lock_statement,
                    )
                return self._write(attempt.snapshot, identity, redacting_errors(plan))

        return self._retry(
            self._primary, self.database.fetch_primary, write, unlocked_attempts=unlocked_attempts
        )

    def _retry(
        self,
        snapshots: Snapshots,
        fetch: Fetch,
        work: Callable[[Attempt], T],
        *,
        unlocked_attempts: int | None = None,
    ) -> T:
        """Do the work, again as long as it is refused under a structure or rights that have moved on.

        What is refused, by the service or by PostgreSQL, is told only when the counters are seen to be those of the
        plan. They never go back, so one look is enough, after the work was undone: what they are now they were all
        along. From the attempt `unlocked_attempts` on the work holds them itself.
        """
        self._monitor.look()
        before: _Fault | None = None
        deadlocked = False
        for number in range(self._attempts):
            snapshot = snapshots.current()
            holds_version = unlocked_attempts is not None and number >= unlocked_attempts
            try:
                return work(Attempt(snapshot, holds_version=holds_version, deadlocked=deadlocked))
            except Deadlock:
                deadlocked = True
                continue
            except Stale as stale:
                before = _refuse_repeated(stale, snapshot, before)
            except (Refused, UnexpectedError) as refusal:
                if (
                    holds_version
                    or _is_unavailable(refusal)
                    or current_version(fetch) == snapshot.version
                ):
                    if isinstance(refusal, Refused) and refusal.inquiry:
                        raise with_inquiry(refusal, self.database.run_primary) from refusal
                    raise
            snapshots.refresh(snapshot)
        raise unavailable("database", "Its structure does not come to rest")

    def _write(
        self, snapshot: Snapshot, identity: Identity, plan: Callable[[RequestContext], WritePlan[T]]
    ) -> T:
        fetch = self.database.fetch_primary
        job = plan(RequestContext(snapshot, find_actor(snapshot, identity, fetch), fetch))
        if job.in_one_statement:
            return job.in_one_statement()
        with self.database.transaction() as transaction:
            check_version(snapshot, current_version(transaction.execute))
            return job.within(transaction)

    def _write_in_transaction(
        self,
        attempt: Attempt,
        identity: Identity,
        plan: Callable[[RequestContext], WritePlan[T]],
        *,
        idempotency: Idempotency | None,
        lock_statement: str,
    ) -> T:
        with self.database.transaction() as transaction:
            lock_key(transaction, identity.name, idempotency)
            if attempt.deadlocked:
                transaction.execute(statement("wait_for_others"))
            snapshot = attempt.snapshot
            used = (
                held(transaction, snapshot, lock_statement)
                if attempt.holds_version
                else checked(transaction, snapshot)
            )
            context = RequestContext(
                used, find_actor(used, identity, transaction.execute), transaction.execute
            )
            return run_idempotently(
                transaction, identity.name, idempotency, lambda: plan(context).within(transaction)
            )

    def run_structure_change(
        self,
        identity: Identity,
        work: Callable[[Transaction, RequestContext], T],
        *,
        idempotency: Idempotency | None = None,
    ) -> T:
        """Do the work of a change of structure: by admins, one at a time over all machines, whole or not at all.

        Moving the counter first takes the lock that orders these changes, so that what is validated is what is
        there, and tells every process when the transaction commits. One that is given up for a deadlock with
        writes of items is done again.
        """
        self._read(
            identity,
            lambda context: require_admin(context.actor),
            self._primary,
            self.database.fetch_primary,
        )
        for _ in range(ATTEMPTS):
            try:
                with self.database.transaction() as transaction:
                    lock_key(transaction, identity.name, idempotency)
                    stored_answer = (
                        find_stored_answer(transaction, identity.name, idempotency)
                        if idempotency
                        else None
                    )
                    if stored_answer:
                        return cast(T, stored_answer.answer)
                    context = _lock_structure(transaction, identity)
                    in_context = partial(work, transaction, context)
                    return run_idempotently(transaction, identity.name, idempotency, in_context)
            except Deadlock:
                continue
            except Stale as conflict:
                raise invalid_payload(f"The database refuses it: {conflict}") from None
        raise unavailable("database", "It is busy with the items of this collection")

    def run_unversioned_read(self, identity: Identity, work: Callable[[RequestContext], T]) -> T:
        """Do a read whose statements, if it has any, do not tell the counters; then look at them."""
        return self.run_read(identity, _then_check_version(work))

    def run_primary_read(self, identity: Identity, work: Callable[[RequestContext], T]) -> T:
        """Do what goes before a write, by what the primary holds: a replica may not know of it yet."""
        return self._read(
            identity, _then_check_version(work), self._primary, self.database.fetch_primary
        )

    def stored_answer(
        self, identity: Identity, idempotency: Idempotency | None
    ) -> StoredAnswer | None:
        """Return the answer of a call that was done before, for calls that must not even be prepared a second time."""
        if idempotency is None:
            return None

        def find(transaction: Transaction) -> StoredAnswer | None:
            lock_key(transaction, identity.name, idempotency)
            return find_stored_answer(transaction, identity.name, idempotency)

        return self.run_write(identity, lambda context: WritePlan(find))

    def reload_structure(
        self, identity: Identity, *, idempotency: Idempotency | None = None
    ) -> None:
        """Have every process load the structure again, for changes made behind the service's back."""
        self.run_structure_change(
            identity, lambda transaction, context: None, idempotency=idempotency
        )

    def close(self) -> None:
        self.database.close()


def _then_check_version(work: Callable[[RequestContext], T]) -> Callable[[RequestContext], T]:
    """Return work whose statements do not tell the counters, with a look at them after it."""

    def checked(context: RequestContext) -> T:
        done = work(context)
        check_version(context.snapshot, current_version(context.fetch))
        return done

    return checked


def redacting_errors(
    plan: Callable[[RequestContext], WritePlan[T]],
) -> Callable[[RequestContext], WritePlan[T]]:
    """Return the plan of a write that tells its caller nothing of what is hidden from it."""

    def planned(context: RequestContext) -> WritePlan[T]:
        policy = context.actor.policy
        if policy.is_admin:
            return plan(context)
        with redacted_problems(policy):
            job = plan(context)
        in_one_statement = job.in_one_statement
        return WritePlan(
            lambda transaction: _redact_errors(policy, lambda: job.within(transaction)),
            in_one_statement and (lambda: _redact_errors(policy, in_one_statement)),
        )

    return planned


def _redact_errors(policy: Policy, work: Callable[[], T]) -> T:
    with redacted_problems(policy):
        return work()


def require_admin(actor: Actor) -> None:
    """Raise `Refused` FORBIDDEN for anybody but an administrator."""
    if not actor.policy.is_admin:
        raise forbidden()


def _lock_structure(transaction: Transaction, identity: Identity) -> RequestContext:
    """Take the lock that orders changes of structure, and return what they start from."""
    transaction.execute(statement("move_structure"))
    found = transaction.execute(statement("find_actor"), identity.values)
    snapshot = load_snapshot(transaction)
    context = RequestContext(
        snapshot, admit(actor_of(snapshot, identity, found), identity), transaction.execute
    )
    require_admin(context.actor)
    return context


_Fault = tuple[Version, str]
"""What went wrong, and under which version of the structure."""


def _is_unavailable(refusal: Exception) -> bool:
    """Tell whether nothing is known of the work's fate, or the service cannot do it now, whatever the structure is."""
    return isinstance(refusal, Refused) and refusal.status == STATUS["SERVICE_UNAVAILABLE"]


def _refuse_repeated(stale: Stale, snapshot: Snapshot, before: _Fault | None) -> _Fault | None:
    """Return the fault to compare the next one with; raises `Refused` when a new look at the structure did not help."""
    if not isinstance(stale, UndefinedName):
        return None
    fault = snapshot.version, str(stale)
    if fault == before:
        raise unavailable("database", f"It refuses the statement: {stale}") from stale
    return fault
