"""The claims of a user at the moment of a login, and the activity on accounts."""

from __future__ import annotations

from dataclasses import dataclass

from cms import jsontext
from cms.access.ip_addresses import networks_of, require_address
from cms.database.connections import Transaction
from cms.database.statements import statement
from cms.errors import invalid_token
from cms.store.identity import ClientInfo, Identity


@dataclass(frozen=True, slots=True)
class UserClaims:
    """What an access token says about its user besides the id."""

    role: str | None
    admin_access: bool
    app_access: bool


def user_claims(transaction: Transaction, identity: Identity) -> UserClaims:
    """Return the claims of a user.

    A required second factor that is not yet set up does not matter here: setting it up takes a
    login. Raises `Refused` INVALID_TOKEN for a user who may not act, and INVALID_IP.
    """
    # The statement is that of every request; a login needs only some of its columns.
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
    """Record in the activity what a user did to their own account."""
    # The user is the author, and the item as well.
    transaction.execute(statement("record_account_activity"), (action, *client.author(user), user))
