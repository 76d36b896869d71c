"""The caller of a request, looked up once for a version of the rights, and whether it may act."""

from __future__ import annotations

from typing import NamedTuple

from cms import jsontext
from cms.access.app_access import PUBLIC_SETTINGS_GRANT, app_grants
from cms.access.ip_addresses import networks_of, require_address
from cms.access.policy import ADMIN, Actor, Policy, grants_of, policy_name, policy_of
from cms.database.connections import Fetch, Row
from cms.database.statements import statement
from cms.errors import forbidden, invalid_token
from cms.schema.model import Version
from cms.store.counters import check_version
from cms.store.identity import ANONYMOUS, CALLER_FIELDS, Identity
from cms.store.share_actors import find_share_actor
from cms.store.snapshot import Snapshot


class _ActorRow(NamedTuple):
    """The row of the statement `find_actor`, which it returns for every caller.

    `user` is None for a caller without credentials. `permissions` and `networks` are JSON.
    """

    structure: int
    access: int
    flows: int
    user: str | None
    role: str | None
    is_admin: bool
    has_app_access: bool
    roles: list[str]
    permissions: str
    networks: str
    lacks_tfa: bool


_SERVICE = Actor(ADMIN, None, None)
"""The service itself, which has all rights."""


def find_actor(snapshot: Snapshot, identity: Identity, fetch: Fetch) -> Actor:
    """Return the caller, looked up once for each snapshot; raises `Refused` when it may not act."""
    if identity.is_service:
        return _SERVICE
    # A logout moves no counter, so the session of a cookie is looked up with every request.
    if identity.cookie and not fetch(
        statement("find_open_session"), (identity.session, identity.cookie)
    ):
        raise invalid_token()
    caller = identity[:CALLER_FIELDS]
    actor = snapshot.actors.get(caller) or snapshot.share_actors.get(caller)
    return admit(actor or _looked_up_actor(snapshot, identity, fetch), identity)


def unchecked_actor(snapshot: Snapshot, identity: Identity, fetch: Fetch) -> Actor:
    """Return a caller that may be unable to act; raises `Refused` for one that does not exist."""
    return snapshot.actors.get(identity.caller) or _looked_up_actor(snapshot, identity, fetch)


def _looked_up_actor(snapshot: Snapshot, identity: Identity, fetch: Fetch) -> Actor:
    caller = identity.caller
    rows = fetch(statement("find_actor"), caller)
    # Rights that are newer than the snapshot must not get into its caches.
    check_version(snapshot, Version(*rows[0][:3]))
    row = _ActorRow(*rows[0])
    # Refusals are not kept, so that invented tokens push no caller out of the cache.
    # A session that belongs to no active user may be that of a share.
    if row.user is None and identity.session and not identity.user:
        actor = find_share_actor(snapshot, identity, fetch)
        return snapshot.share_actors.setdefault_with(caller, lambda: actor)
    # Not kept either: the account may be made at any moment, which moves no counter.
    if row.user is None and identity.may_be_unknown and not _has_account(identity, fetch):
        return actor_of(snapshot, ANONYMOUS, rows)
    # Snapshots with the same rights share this cache, whatever their structure.
    return snapshot.actors.setdefault_with(caller, lambda: actor_of(snapshot, identity, rows))


def _has_account(identity: Identity, fetch: Fetch) -> bool:
    """Tell whether anybody here has the address of an identity, as a user who is not active."""
    return fetch(statement("has_account"), (identity.email,)) == [(True,)]


def own_address(identity: Identity) -> str | None:
    """Return the address of the caller whose roles count."""
    # The role of an operation in a flow is not the role of the caller who caused the run.
    return None if identity.role else identity.client.ip


def admit(actor: Actor, identity: Identity) -> Actor:
    """Return the actor if it may act from the client's address.

    The address is checked with every request: a snapshot has one actor for all addresses. Raises
    `Refused`: INVALID_IP for an address that the actor's roles do not allow, FORBIDDEN for a user
    who still has to set up a second factor.
    """
    # Before the second factor: from other addresses not even that may be set up.
    if actor.networks:
        require_address(actor.networks, own_address(identity))
    if identity.role:
        return actor
    if actor.lacks_tfa and not identity.may_enrol:
        raise forbidden()
    return actor


def actor_of(snapshot: Snapshot, identity: Identity, rows: list[Row]) -> Actor:
    """Return the actor of rows of `find_actor`; raises `Refused` INVALID_TOKEN for no such user."""
    row = _ActorRow(*rows[0])
    # A caller without credentials has the rights of the Public role.
    if row.user is None and not identity.is_anonymous:
        raise invalid_token()
    policy = ADMIN
    if not row.is_admin:
        # Callers who are granted the same share a policy, and with it the statements that it
        # allows.
        policy = snapshot.policies.setdefault_with(
            (row.has_app_access, row.permissions), lambda: _policy(row)
        )
    return Actor(
        policy,
        row.user,
        row.role or identity.role,
        networks=networks_of(jsontext.loads_stored(row.networks)),
        lacks_tfa=row.lacks_tfa,
        session=identity.session,
    )


def _policy(row: _ActorRow) -> Policy:
    grants = grants_of(row.permissions)
    if row.has_app_access:
        grants += app_grants(grants)
    # Everybody may read the public part of the settings.
    grants.append(PUBLIC_SETTINGS_GRANT)
    # All of the above follows from these two.
    name = policy_name(f"{row.has_app_access} {row.permissions}")
    return policy_of(name, grants, has_app_access=row.has_app_access)
