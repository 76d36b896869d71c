"""The store: what every request goes through to reach the database, always under fresh structure and rights."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar, cast

from cms import jsontext, passwords
from cms.access.addresses import networks_of, require_admission
from cms.access.app import EVERYBODYS, app_grants
from cms.access.discretion import discretion
from cms.access.policy import ADMIN, Actor, Policy, grant_of, policy_of
from cms.config import Config
from cms.errors import STATUS, Problem, Refused, forbidden, invalid_payload, unavailable
from cms.query.parse import Page
from cms.schema.model import Version
from cms.store.border import Deadlock, Misfit, Stale, Unforeseen
from cms.store.counters import check_version, checked, held, version_of
from cms.store.database import Database, Row, Transaction
from cms.store.inquiry import completed
from cms.store.once import Kept, Once, done_once, kept_answer, take_turn
from cms.store.snapshot import Snapshot, Snapshots, load_within
from cms.store.statements import statement
from cms.store.watch import Watch

ATTEMPTS = 5
ATTEMPTS_AT_EASE = 2

T = TypeVar("T")

Fetch = Callable[[str, Sequence[object]], list[Row]]
"""Runs one reading statement and returns its rows."""


@dataclass(frozen=True, slots=True)
class Caller:
    """Where a request came from."""

    ip: str | None = None
    user_agent: str | None = None
    origin: str | None = None


@dataclass(frozen=True, slots=True)
class Identity:
    """Who a request says it is, its signature checked: a user in a session, or the digest of a static token.

    `cookie` is the digest of a session cookie: it names a user by the session alone, which is looked up every time, so
    that it is dead with the logout. `enrolling` are the few requests that a user may make who still has to set up
    the second factor that the role asks for.
    Two identities are equal when they name the same caller, from wherever it calls.
    """

    user: str | None = None
    token: str | None = None
    session: str | None = None
    cookie: str | None = None
    caller: Caller = field(default=Caller(), compare=False)
    enrolling: bool = field(default=False, compare=False)

    def calling_from(self, caller: Caller) -> Identity:
        """Return the same identity with where this request of it came from."""
        return Identity(self.user, self.token, self.session, self.cookie, caller, self.enrolling)

    @property
    def name(self) -> str:
        """What tells one caller from another; those without credentials are told apart by their address."""
        return self.user or self.token or self.cookie or f"public at {self.caller.ip}"

    @property
    def values(self) -> tuple[str | None, ...]:
        """What the statement `find_actor` takes."""
        return self.user, self.token, self.session, self.cookie


ANONYMOUS = Identity()


@dataclass(frozen=True, slots=True)
class Scene:
    """Under what a request runs: the catalogue with its caches, the caller, and where to look things up meanwhile.

    That is the replica for reads, the primary for plans of writes, and the transaction for what is planned in one:
    it must not wait for a second connection while it holds its own.
    """

    snapshot: Snapshot
    actor: Actor
    fetch: Fetch


@dataclass(frozen=True, slots=True)
class Job(Generic[T]):
    """What a write comes to: work in a transaction, or one statement that does as well.

    `at_once` checks the counters itself. Once it has written it refuses nothing: what is refused may be done again.
    """

    within: Callable[[Transaction], T]
    at_once: Callable[[], T] | None = None


@dataclass(frozen=True, slots=True)
class Attempt:
    """One attempt at a work: the snapshot that it goes by, whether it has to hold the structure and the rights still,
    and whether one before it ended in a deadlock.
    """

    snapshot: Snapshot
    holds: bool
    deadlocked: bool


class Store:
    """The database of one application, with what its process remembers of it."""

    def __init__(self, config: Config) -> None:
        self.database = Database(config)
        self.page = Page(config.query_limit_default, config.query_limit_max)
        self.depth = config.max_relational_depth
        self.max_nested_rows = config.max_nested_rows
        self.max_answer_size = config.max_answer_size
        self.statement_timeout = config.db_statement_timeout
        self._attempts = ATTEMPTS + config.database_pool_size  # each connection may hold a plan that is out of date
        moved = self.database.give_up_statements
        self.snapshots = Snapshots(self.database.fetch, moved=moved)
        # A replica may lag: what is written is checked against the primary's own structure and rights.
        replica = config.database_read_url
        self._primary = Snapshots(self.database.fetch_primary, moved=moved) if replica else self.snapshots
        sources = (self._primary, self.database.fetch_primary), (self.snapshots, self.database.fetch)
        self._watch = Watch(self.database, sources)

    def reading(self, identity: Identity, work: Callable[[Scene], T]) -> T:
        """Do the work of a read, again where structure or rights had moved on; in the end it holds them still."""
        return self._looking(identity, work, self.snapshots, self.database.fetch)

    def _looking(self, identity: Identity, work: Callable[[Scene], T], snapshots: Snapshots, fetch: Fetch) -> T:
        def look(attempt: Attempt) -> T:
            if not attempt.holds:
                return work(Scene(attempt.snapshot, _actor(attempt.snapshot, identity, fetch), fetch))
            with self.database.transaction() as transaction:
                snapshot = held(transaction, attempt.snapshot, "hold_version")
                return work(Scene(snapshot, _actor(snapshot, identity, fetch), fetch))

        # What the primary holds still says nothing of a replica.
        return self._attempted(snapshots, fetch, look, at_ease=ATTEMPTS if snapshots is self._primary else None)

    def writing(
        self,
        identity: Identity,
        plan: Callable[[Scene], Job[T]],
        *,
        once: Once | None = None,
        moves_rights: bool = False,
    ) -> T:
        """Plan a write outside any transaction, then do it in one, all of it again where structure or rights had moved.

        The first attempts hold up no change of structure or rights; later ones do, so that a run of them does not
        starve it. After a deadlock the next attempts take turns with all others that had one. With `once` a call that
        was answered before gets that answer, and does nothing. A write that `moves_rights` takes the counters for
        itself before it writes: two that shared them could not move them, and waited for each other.
        """
        at_ease = 0 if moves_rights else ATTEMPTS_AT_EASE

        def write(attempt: Attempt) -> T:
            with passwords.rationed():
                if attempt.holds or once or attempt.deadlocked:
                    hold = "take_version" if moves_rights else "hold_version"
                    return self._write_within(attempt, identity, discreetly(plan), once=once, hold=hold)
                return self._write(attempt.snapshot, identity, discreetly(plan))

        return self._attempted(self._primary, self.database.fetch_primary, write, at_ease=at_ease)

    def _attempted(
        self, snapshots: Snapshots, fetch: Fetch, work: Callable[[Attempt], T], *, at_ease: int | None = None
    ) -> T:
        """Do the work, again as long as it is refused under a structure or rights that have moved on.

        What is refused, by the service or by PostgreSQL, is told only when the counters are seen to be those of the
        plan. They never go back, so one look is enough, after the work was undone: what they are now they were all
        along. From the attempt `at_ease` on the work holds them itself.
        """
        self._watch.look()
        before: _Fault | None = None
        deadlocked = False
        for number in range(self._attempts):
            snapshot = snapshots.current()
            holds = at_ease is not None and number >= at_ease
            try:
                return work(Attempt(snapshot, holds=holds, deadlocked=deadlocked))
            except Deadlock:
                deadlocked = True
                continue
            except Stale as stale:
                before = _passing(stale, snapshot, before)
            except (Refused, Unforeseen) as refusal:
                if holds or _is_unavailable(refusal) or version_of(fetch) == snapshot.version:
                    if isinstance(refusal, Refused) and refusal.inquiry:
                        raise completed(refusal, self.database.run_primary) from refusal
                    raise
            snapshots.renew(snapshot)
        raise unavailable("database", "Its structure does not come to rest")

    def _write(self, snapshot: Snapshot, identity: Identity, plan: Callable[[Scene], Job[T]]) -> T:
        fetch = self.database.fetch_primary
        job = plan(Scene(snapshot, _actor(snapshot, identity, fetch), fetch))
        if job.at_once:
            return job.at_once()
        with self.database.transaction() as transaction:
            check_version(snapshot, version_of(transaction.execute))
            return job.within(transaction)

    def _write_within(
        self, attempt: Attempt, identity: Identity, plan: Callable[[Scene], Job[T]], *, once: Once | None, hold: str
    ) -> T:
        with self.database.transaction() as transaction:
            take_turn(transaction, identity.name, once)
            if attempt.deadlocked:
                transaction.execute(statement("wait_for_others"))
            snapshot = attempt.snapshot
            used = held(transaction, snapshot, hold) if attempt.holds else checked(transaction, snapshot)
            scene = Scene(used, _actor(used, identity, transaction.execute), transaction.execute)
            return done_once(transaction, identity.name, once, lambda: plan(scene).within(transaction))

    def restructuring(
        self, identity: Identity, work: Callable[[Transaction, Scene], T], *, once: Once | None = None
    ) -> T:
        """Do the work of a change of structure: by admins, one at a time over all machines, whole or not at all.

        Moving the counter first takes the lock that orders these changes, so that what is validated is what is
        there, and tells every process when the transaction commits. One that is given up for a deadlock with
        writes of items is done again.
        """
        self._looking(identity, lambda scene: require_admin(scene.actor), self._primary, self.database.fetch_primary)
        for _ in range(ATTEMPTS):
            try:
                with self.database.transaction() as transaction:
                    take_turn(transaction, identity.name, once)
                    kept = kept_answer(transaction, identity.name, once) if once else None
                    if kept:
                        return cast(T, kept.answer)
                    scene = _first_in_line(transaction, identity)
                    return done_once(transaction, identity.name, once, lambda: work(transaction, scene))  # noqa: B023
            except Deadlock:
                continue
            except Stale as conflict:
                raise invalid_payload(f"The database refuses it: {conflict}") from None
        raise unavailable("database", "It is busy with the items of this collection")

    def at_rest(self, identity: Identity, work: Callable[[Scene], T]) -> T:
        """Do a read whose statements, if it has any, do not tell the counters; then look at them."""
        return self.reading(identity, _compared(work))

    def checking(self, identity: Identity, work: Callable[[Scene], T]) -> T:
        """Do what goes before a write, by what the primary holds: a replica may not know of it yet."""
        return self._looking(identity, _compared(work), self._primary, self.database.fetch_primary)

    def kept(self, identity: Identity, once: Once | None) -> Kept | None:
        """Return the answer of a call that was done before, for calls that must not even be prepared a second time."""
        if once is None:
            return None

        def find(transaction: Transaction) -> Kept | None:
            take_turn(transaction, identity.name, once)
            return kept_answer(transaction, identity.name, once)

        return self.writing(identity, lambda scene: Job(find))

    def forget(self, identity: Identity, *, once: Once | None = None) -> None:
        """Have every process load the structure again, for changes made behind the service's back."""
        self.restructuring(identity, lambda transaction, scene: None, once=once)

    def close(self) -> None:
        self.database.close()


def _compared(work: Callable[[Scene], T]) -> Callable[[Scene], T]:
    """Return work whose statements do not tell the counters, with a look at them after it."""

    def checked(scene: Scene) -> T:
        done = work(scene)
        check_version(scene.snapshot, version_of(scene.fetch))
        return done

    return checked


def discreetly(plan: Callable[[Scene], Job[T]]) -> Callable[[Scene], Job[T]]:
    """Return the plan of a write that tells its caller nothing of what is hidden from it."""

    def planned(scene: Scene) -> Job[T]:
        policy = scene.actor.policy
        if policy.admin:
            return plan(scene)
        with discretion(policy):
            job = plan(scene)
        at_once = job.at_once
        return Job(
            lambda transaction: _discreet(policy, lambda: job.within(transaction)),
            at_once and (lambda: _discreet(policy, at_once)),
        )

    return planned


def _discreet(policy: Policy, work: Callable[[], T]) -> T:
    with discretion(policy):
        return work()


def _actor(snapshot: Snapshot, identity: Identity, fetch: Fetch) -> Actor:
    """Return the caller, looked up at most once for a snapshot; raises `Refused` when it may not act."""

    def find() -> Actor:
        rows = fetch(statement("find_actor"), identity.values)
        check_version(snapshot, Version(*rows[0][:2]))
        return actor_of(snapshot, identity, rows)

    if identity.cookie and not fetch(statement("find_open_session"), (identity.session, identity.cookie)):
        raise _invalid_token()
    return admitted(snapshot.actors.setdefault_with(identity, find), identity)


def admitted(actor: Actor, identity: Identity) -> Actor:
    """Return the actor; raises `Refused` INVALID_IP from elsewhere than its roles allow, FORBIDDEN when unproven."""
    require_admission(actor.networks, identity.caller.ip)
    if actor.unproven and not identity.enrolling:
        raise forbidden()
    return actor


def actor_of(snapshot: Snapshot, identity: Identity, rows: list[Row]) -> Actor:
    """Return the caller that `find_actor` found; raises `Refused` INVALID_TOKEN when it may not act."""
    _, _, user, role, admin, app, roles, permissions, networks, unproven = rows[0]
    if user is None and identity != ANONYMOUS:
        raise _invalid_token()

    def policy() -> Policy:
        found = jsontext.stored(permissions)
        grants = [grant_of(row) for row in found] if isinstance(found, list) else []
        return policy_of(name, [*grants, *(app_grants(grants) if app else ()), EVERYBODYS], app=app)

    name = ",".join(roles) or "public"
    held = ADMIN if admin else snapshot.policies.setdefault_with(name, policy)
    bound_to = networks_of(jsontext.stored(networks))
    return Actor(held, user, role, networks=bound_to, unproven=bool(unproven), session=identity.session)


def _invalid_token() -> Refused:
    return Refused(Problem("INVALID_TOKEN", "The access token is not valid."))


def require_admin(actor: Actor) -> None:
    """Raise `Refused` FORBIDDEN for anybody but an administrator."""
    if not actor.policy.admin:
        raise forbidden()


def _first_in_line(transaction: Transaction, identity: Identity) -> Scene:
    """Take the lock that orders changes of structure, and return what they start from."""
    transaction.execute(statement("move_structure"))
    found = transaction.execute(statement("find_actor"), identity.values)
    snapshot = load_within(transaction)
    scene = Scene(snapshot, admitted(actor_of(snapshot, identity, found), identity), transaction.execute)
    require_admin(scene.actor)
    return scene


_Fault = tuple[Version, str]
"""What went wrong, and under which version of the structure."""


def _is_unavailable(refusal: Exception) -> bool:
    """Tell whether nothing is known of the work's fate, or the service cannot do it now, whatever the structure is."""
    return isinstance(refusal, Refused) and refusal.status == STATUS["SERVICE_UNAVAILABLE"]


def _passing(stale: Stale, snapshot: Snapshot, before: _Fault | None) -> _Fault | None:
    """Return the fault to compare the next one with; raises `Refused` when a new look at the structure did not help."""
    if not isinstance(stale, Misfit):
        return None
    fault = snapshot.version, str(stale)
    if fault == before:
        raise unavailable("database", f"It refuses the statement: {stale}") from stale
    return fault
