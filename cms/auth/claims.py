"""The claims of a user at the moment of a login."""

from __future__ import annotations

from dataclasses import dataclass

from cms import jsontext
from cms.access.ip_addresses import networks_of, require_address
from cms.database.connections import Transaction
from cms.database.statements import statement
from cms.errors import invalid_token
from cms.store.identity import Identity


@dataclass(frozen=True, slots=True)
class UserClaims:
    """The claims of an access token about its user, besides the id."""

    role: str | None
    admin_access: bool
    app_access: bool


def user_claims(transaction: Transaction, identity: Identity) -> UserClaims:
    """Return the claims of a user.

    A required second factor that is not yet set up does not matter here: setting it up takes a
    login. Raises `Refused` INVALID_TOKEN for a user who may not act, and INVALID_IP.
    """
    # The statement is that of every request; a login needs only some of its columns.
    _, _, _, user, role, admin, app, _, _, networks, _ = transaction.execute(
        statement("find_actor"), identity.caller
    )[0]
    if user is None:
        raise invalid_token()
    require_address(networks_of(jsontext.loads_stored(networks)), identity.client.ip)
    return UserClaims(role, bool(admin), bool(app))
