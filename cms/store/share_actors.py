"""The caller with a token of a share: no user, who sees one item (docs/shares.md)."""

from __future__ import annotations

from typing import NamedTuple

from cms import jsontext
from cms.access.app_access import PUBLIC_SETTINGS_GRANT
from cms.access.ip_addresses import networks_of
from cms.access.policy import (
    ADMIN,
    Actor,
    CallerValues,
    Policy,
    SharedItem,
    grants_of,
    policy_name,
    policy_of,
)
from cms.access.shares import all_grants, role_grants
from cms.database.connections import Fetch
from cms.database.statements import statement
from cms.errors import invalid_token
from cms.schema.model import Catalogue, Version
from cms.store.counters import check_version
from cms.store.identity import Identity
from cms.store.snapshot import Snapshot


class ShareRow(NamedTuple):
    """The row of the statement `find_share_actor`.

    `seconds_left` is None for a share without an end. The permissions are JSON: those of the role
    to read, those of the creator on the collection, and those of the Public role to read.
    """

    structure: int
    access: int
    flows: int
    id: str
    collection: str
    item: str
    role: str | None
    is_admin: bool
    permissions: str
    networks: str
    creator: str
    creator_role: str | None
    creator_is_admin: bool
    creator_permissions: str
    public_permissions: str
    seconds_left: float | None


def find_share_actor(snapshot: Snapshot, identity: Identity, fetch: Fetch) -> Actor:
    """Return the caller of a share's session.

    Raises `Refused` INVALID_TOKEN for a share that has ended, or whose creator may not make it.
    """
    row = find_share(fetch, identity)
    if row is None:
        raise invalid_token()
    check_version(snapshot, Version(*row[:3]))
    policy = snapshot.share_policies.setdefault_with(
        row.id, lambda: _policy(row, snapshot.catalogue)
    )
    networks = networks_of(jsontext.loads_stored(row.networks))
    return Actor(policy, None, row.role, networks=networks, session=identity.session)


def find_share(fetch: Fetch, identity: Identity) -> ShareRow | None:
    """Return the share of a session; None for one that must not be used."""
    rows = fetch(statement("find_share_actor"), (identity.session, identity.cookie))
    if not rows:
        return None
    return ShareRow(*rows[0])


def _policy(row: ShareRow, catalogue: Catalogue) -> Policy:
    # All of the below follows from the row, which holds the version of the structure.
    name = policy_name(repr(row._replace(seconds_left=None)))
    grants = all_grants(row.collection, catalogue)
    if not row.is_admin:
        grants = role_grants(grants_of(row.permissions), row.collection, catalogue)
    creator = ADMIN
    if not row.creator_is_admin:
        creator = policy_of(f"creator {name}", grants_of(row.creator_permissions))
    public = grants_of(row.public_permissions)
    shared = SharedItem(
        row.collection,
        row.item,
        role=policy_of(f"role {name}", grants),
        creator=creator,
        creator_values=CallerValues(row.creator, row.creator_role),
        public=policy_of(f"public {name}", public),
    )
    return policy_of(name, [*grants, *public, PUBLIC_SETTINGS_GRANT], shared=shared)
