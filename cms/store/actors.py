"""The caller of a request, looked up once for a version of the rights, and whether it may act."""

from __future__ import annotations

from cms import jsontext
from cms.access.addresses import networks_of, require_address
from cms.access.app_access import PUBLIC_SETTINGS_GRANT, app_grants
from cms.access.policy import ADMIN, Actor, Policy, grant_of, policy_of
from cms.database.connections import Fetch, Row
from cms.database.statements import statement
from cms.errors import Problem, Refused, forbidden
from cms.schema.model import Version
from cms.store.counters import check_version
from cms.store.identity import ANONYMOUS, Identity
from cms.store.snapshot import Snapshot


def find_actor(snapshot: Snapshot, identity: Identity, fetch: Fetch) -> Actor:
    """Return the caller, looked up once for a snapshot; raises `Refused` when it may not act."""

    def find() -> Actor:
        rows = fetch(statement("find_actor"), identity.values)
        check_version(snapshot, Version(*rows[0][:2]))
        return actor_of(snapshot, identity, rows)

    if identity.cookie and not fetch(
        statement("find_open_session"), (identity.session, identity.cookie)
    ):
        raise _invalid_token()
    return admit(snapshot.actors.setdefault_with(identity, find), identity)


def admit(actor: Actor, identity: Identity) -> Actor:
    """Return the actor if it may act from where it is.

    Raises `Refused`: INVALID_IP for an address that its roles do not allow, FORBIDDEN for a user
    who still has to set up a second factor.
    """
    require_address(actor.networks, identity.client.ip)
    if actor.lacks_tfa and not identity.may_enrol:
        raise forbidden()
    return actor


def actor_of(snapshot: Snapshot, identity: Identity, rows: list[Row]) -> Actor:
    """Return the actor of rows of `find_actor`; raises `Refused` INVALID_TOKEN for no such user."""
    _, _, user, role, is_admin, has_app_access, roles, permissions, networks, lacks_tfa = rows[0]
    if user is None and identity != ANONYMOUS:
        raise _invalid_token()

    def make_policy() -> Policy:
        records = jsontext.loads_stored(permissions)
        grants = [grant_of(record) for record in records] if isinstance(records, list) else []
        granted = [*grants, PUBLIC_SETTINGS_GRANT]
        if has_app_access:
            granted = [*grants, *app_grants(grants), PUBLIC_SETTINGS_GRANT]
        return policy_of(name, granted, has_app_access=has_app_access)

    # All callers with the same roles share a policy, and with it the statements that it allows.
    name = ",".join(roles) or "public"
    policy = ADMIN if is_admin else snapshot.policies.setdefault_with(name, make_policy)
    return Actor(
        policy,
        user,
        role,
        networks=networks_of(jsontext.loads_stored(networks)),
        lacks_tfa=bool(lacks_tfa),
        session=identity.session,
    )


def _invalid_token() -> Refused:
    return Refused(Problem("INVALID_TOKEN", "The access token is not valid."))
