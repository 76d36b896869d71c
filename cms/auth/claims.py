"""Who somebody is at the moment of a login, and what they do to accounts, written down."""

from __future__ import annotations

from dataclasses import dataclass

from cms import jsontext
from cms.access.addresses import networks_of, require_address
from cms.auth.tokens import invalid_token
from cms.database.connections import Transaction
from cms.database.statements import statement
from cms.store.identity import ClientInfo, Identity


@dataclass(frozen=True, slots=True)
class UserClaims:
    """What an access token says of its user beside the id."""

    role: str | None
    admin_access: bool
    app_access: bool


def person(transaction: Transaction, identity: Identity) -> UserClaims:
    """Return who a user is; raises `Refused` INVALID_TOKEN for one who may not act, and INVALID_IP.

    A second factor that is missing yet hinders nobody here: without a login there is no way to set it up.
    """
    _, _, user, role, admin, app, _, _, networks, _ = transaction.execute(
        statement("find_actor"), identity.values
    )[0]
    if user is None:
        raise invalid_token()
    require_address(networks_of(jsontext.loads_stored(networks)), identity.client.ip)
    return UserClaims(role, bool(admin), bool(app))


def record_activity(
    transaction: Transaction, action: str, *, user: str, client: ClientInfo
) -> None:
    """Write an action of a user on the own account into the activity."""
    values = (action, user, client.ip, client.user_agent, client.origin, user)
    transaction.execute(statement("note_activity"), values)
