"""The store: what every request goes through to reach the database, always under fresh structure and rights."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from cms import jsontext, passwords
from cms.access.addresses import networks_of, require_admission
from cms.access.app import EVERYBODYS, app_grants
from cms.access.discretion import discretion
from cms.access.policy import ADMIN, Actor, Policy, grant_of, policy_of
from cms.config import Config
from cms.errors import STATUS, Problem, Refused, forbidden, invalid_payload, unavailable
from cms.query.parse import Page
from cms.schema.model import Version
from cms.store.border import Deadlock, Misfit, Stale
from cms.store.database import Database, Row, Transaction
from cms.store.once import Once, done_once, take_turn
from cms.store.snapshot import Snapshot, Snapshots, load_within
from cms.store.statements import statement

ATTEMPTS = 5
ATTEMPTS_AT_EASE = 2

T = TypeVar("T")


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
    """Under what a request runs: the catalogue with its caches, and the caller."""

    snapshot: Snapshot
    actor: Actor


@dataclass(frozen=True, slots=True)
class Job(Generic[T]):
    """What a write comes to: work in a transaction, or one statement that does as well.

    `at_once` checks the counters itself.
    """

    within: Callable[[Transaction], T]
    at_once: Callable[[], T] | None = None


@dataclass(frozen=True, slots=True)
class Turns:
    """With whom a write takes turns: with those that have the same key, with those that were in a deadlock."""

    once: Once | None
    deadlocked: bool = False


class Store:
    """The database of one application, with what its process remembers of it."""

    def __init__(self, config: Config) -> None:
        self.database = Database(config)
        self.page = Page(config.query_limit_default, config.query_limit_max)
        self.depth = config.max_relational_depth
        self._attempts = ATTEMPTS + config.database_pool_size  # each connection may hold a plan that is out of date
        self.snapshots = Snapshots(self.database.fetch)
        # A replica may lag: what is written is checked against the primary's own structure and rights.
        replica = config.database_read_url
        self._primary = Snapshots(self.database.fetch_primary) if replica else self.snapshots

    def reading(self, identity: Identity, work: Callable[[Scene], T]) -> T:
        """Do the work of a read, again when it raises `Stale`: structure or rights had moved on."""
        before: _Fault | None = None
        for _ in range(self._attempts):
            snapshot = self.snapshots.current()
            try:
                return work(Scene(snapshot, _actor(snapshot, identity, self.database.fetch)))
            except Stale as stale:
                before = _passing(stale, snapshot, before)
                self.snapshots.renew(snapshot)
            except Refused as refused:
                # A refusal needs no statement, so nothing has told yet whether it rests on what still holds.
                if refused.status == STATUS["SERVICE_UNAVAILABLE"] or self._holds(snapshot):
                    raise
                self.snapshots.renew(snapshot)
        raise unavailable("database", "Its structure does not come to rest")

    def writing(self, identity: Identity, plan: Callable[[Scene], Job[T]], *, once: Once | None = None) -> T:
        """Plan a write outside any transaction, then do it in one, all of it again when it raises `Stale`.

        The first attempts hold up no change of structure or rights; later ones do, so that a run of them does not
        starve it. After a deadlock the next attempts take turns with all others that had one. With `once` a call that
        was answered before gets that answer, and does nothing.
        """
        before: _Fault | None = None
        turns = Turns(once)
        for attempt in range(self._attempts):
            snapshot, hold = self._primary.current(), attempt >= ATTEMPTS_AT_EASE
            try:
                with passwords.rationed():
                    if hold or once or turns.deadlocked:
                        return self._write_within(snapshot, identity, discreetly(plan), turns=turns, hold=hold)
                    return self._write(snapshot, identity, discreetly(plan))
            except Deadlock:
                turns = Turns(once, deadlocked=True)
            except Stale as stale:
                before = _passing(stale, snapshot, before)
                self._primary.renew(snapshot)
        raise unavailable("database", "Its structure does not come to rest")

    def _write(self, snapshot: Snapshot, identity: Identity, plan: Callable[[Scene], Job[T]]) -> T:
        fetch = self.database.fetch_primary
        try:
            scene = Scene(snapshot, _actor(snapshot, identity, fetch))
            job = plan(scene)
        except Refused:
            # A refusal needs no statement, so nothing has told yet whether it rests on what still holds.
            check_version(snapshot, _version(fetch))
            raise
        if job.at_once:
            return job.at_once()
        with self.database.transaction() as transaction:
            check_version(snapshot, _version(transaction.execute))
            return job.within(transaction)

    def _write_within(
        self, snapshot: Snapshot, identity: Identity, plan: Callable[[Scene], Job[T]], *, turns: Turns, hold: bool
    ) -> T:
        once = turns.once
        with self.database.transaction() as transaction:
            take_turn(transaction, identity.name, once)
            if turns.deadlocked:
                transaction.execute(statement("wait_for_others"))
            used = _held(transaction, snapshot) if hold else _checked(transaction, snapshot)
            scene = Scene(used, _actor(used, identity, transaction.execute))
            return done_once(transaction, identity.name, once, lambda: plan(scene).within(transaction))

    def restructuring(
        self, identity: Identity, work: Callable[[Transaction, Scene], T], *, once: Once | None = None
    ) -> T:
        """Do the work of a change of structure: by admins, one at a time over all machines, whole or not at all.

        Moving the counter first takes the lock that orders these changes, so that what is validated is what is
        there, and tells every process when the transaction commits. One that is given up for a deadlock with
        writes of items is done again.
        """
        self.reading(identity, lambda scene: require_admin(scene.actor))
        for _ in range(ATTEMPTS):
            try:
                with self.database.transaction() as transaction:
                    take_turn(transaction, identity.name, once)
                    scene = _first_in_line(transaction, identity)
                    return done_once(transaction, identity.name, once, lambda: work(transaction, scene))  # noqa: B023
            except Deadlock:
                continue
            except Stale as conflict:
                raise invalid_payload(f"The database refuses it: {conflict}") from None
        raise unavailable("database", "It is busy with the items of this collection")

    def at_rest(self, identity: Identity, work: Callable[[Scene], T]) -> T:
        """Do a read that is answered from the catalogue alone, after a look at the counters."""

        def checked(scene: Scene) -> T:
            check_version(scene.snapshot, Version(*self.database.fetch(statement("find_version"))[0]))
            return work(scene)

        return self.reading(identity, checked)

    def forget(self, identity: Identity) -> None:
        """Have every process load the structure again, for changes made behind the service's back."""
        self.restructuring(identity, lambda transaction, scene: None)

    def close(self) -> None:
        self.database.close()

    def _holds(self, snapshot: Snapshot) -> bool:
        return Version(*self.database.fetch(statement("find_version"))[0]) == snapshot.version


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


Fetch = Callable[[str, Sequence[object]], list[Row]]


def _actor(snapshot: Snapshot, identity: Identity, fetch: Fetch) -> Actor:
    """Return the caller, looked up at most once for a snapshot; raises `Refused` when it may not act."""

    def find() -> Actor:
        rows = fetch(statement("find_actor"), identity.values)
        check_version(snapshot, Version(*rows[0][:2]))
        return actor_of(snapshot, identity, rows)

    if identity.cookie and not fetch(statement("find_open_session"), (identity.session, identity.cookie)):
        raise _invalid_token()
    return admitted(snapshot.actors.get(identity, find), identity)


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
        listed = dict.fromkeys(grant.collection for grant in grants)
        return policy_of(name, [*grants, *(app_grants(listed) if app else ()), EVERYBODYS], app=app)

    name = ",".join(roles) or "public"
    held = ADMIN if admin else snapshot.policies.get(name, policy)
    bound_to = networks_of(jsontext.stored(networks))
    return Actor(held, user, role, networks=bound_to, unproven=bool(unproven), session=identity.session)


def _invalid_token() -> Refused:
    return Refused(Problem("INVALID_TOKEN", "The access token is not valid."))


def require_admin(actor: Actor) -> None:
    """Raise `Refused` FORBIDDEN for anybody but an administrator."""
    if not actor.policy.admin:
        raise forbidden()


def check_version(snapshot: Snapshot, seen: Version) -> None:
    """Raise `Stale` when an answer was made under other counters than the snapshot's."""
    if seen != snapshot.version:
        raise Stale(f"{seen} instead of {snapshot.version}")


def _checked(transaction: Transaction, snapshot: Snapshot) -> Snapshot:
    check_version(snapshot, _version(transaction.execute))
    return snapshot


def _held(transaction: Transaction, snapshot: Snapshot) -> Snapshot:
    """Return a snapshot that holds until the transaction ends: loaded within it when the one at hand is old again."""
    held = Version(*transaction.execute(statement("hold_version"))[0])
    return snapshot if snapshot.version == held else load_within(transaction)


def _version(fetch: Fetch) -> Version:
    return Version(*fetch(statement("find_version"), ())[0])


def _first_in_line(transaction: Transaction, identity: Identity) -> Scene:
    """Take the lock that orders changes of structure, and return what they start from."""
    transaction.execute(statement("move_structure"))
    found = transaction.execute(statement("find_actor"), identity.values)
    snapshot = load_within(transaction)
    scene = Scene(snapshot, admitted(actor_of(snapshot, identity, found), identity))
    require_admin(scene.actor)
    return scene


_Fault = tuple[Version, str]
"""What went wrong, and under which version of the structure."""


def _passing(stale: Stale, snapshot: Snapshot, before: _Fault | None) -> _Fault | None:
    """Return the fault to compare the next one with; raises `Refused` when a new look at the structure did not help."""
    if not isinstance(stale, Misfit):
        return None
    fault = snapshot.version, str(stale)
    if fault == before:
        raise unavailable("database", f"It refuses the statement: {stale}") from stale
    return fault
