"""The caller of a request, looked up once for a version of the rights, and whether it may act at all."""

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
    """Return the caller, looked up at most once for a snapshot; raises `Refused` when it may not act."""

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
    """Return the actor; raises `Refused` INVALID_IP from elsewhere than its roles allow, FORBIDDEN when unproven."""
    require_address(actor.networks, identity.client.ip)
    if actor.lacks_tfa and not identity.may_enrol:
        raise forbidden()
    return actor


def actor_of(snapshot: Snapshot, identity: Identity, rows: list[Row]) -> Actor:
    """Return the caller that `find_actor` found; raises `Refused` INVALID_TOKEN when it may not act."""
    _, _, user, role, admin, app, roles, permissions, networks, lacks_tfa = rows[0]
    if user is None and identity != ANONYMOUS:
        raise _invalid_token()

    def policy() -> Policy:
        found = jsontext.loads_stored(permissions)
        grants = [grant_of(row) for row in found] if isinstance(found, list) else []
        return policy_of(
            name,
            [*grants, *(app_grants(grants) if app else ()), PUBLIC_SETTINGS_GRANT],
            has_app_access=app,
        )

    name = ",".join(roles) or "public"
    held = ADMIN if admin else snapshot.policies.setdefault_with(name, policy)
    bound_to = networks_of(jsontext.loads_stored(networks))
    return Actor(
        held, user, role, networks=bound_to, lacks_tfa=bool(lacks_tfa), session=identity.session
    )


def _invalid_token() -> Refused:
    return Refused(Problem("INVALID_TOKEN", "The access token is not valid."))
