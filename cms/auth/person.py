"""Who somebody is at the moment of a login, and what they do to accounts, written down."""

from __future__ import annotations

from dataclasses import dataclass

from cms import jsontext
from cms.access.addresses import networks_of, require_admission
from cms.auth.tokens import invalid_token
from cms.store.database import Transaction
from cms.store.statements import statement
from cms.store.store import Caller, Identity


@dataclass(frozen=True, slots=True)
class Person:
    """What an access token says of its user beside the id."""

    role: str | None
    admin_access: bool
    app_access: bool


def person(transaction: Transaction, identity: Identity) -> Person:
    """Return who a user is; raises `Refused` INVALID_TOKEN for one who may not act, and INVALID_IP.

    A second factor that is missing yet hinders nobody here: without a login there is no way to set it up.
    """
    _, _, user, role, admin, app, _, _, networks, _ = transaction.execute(statement("find_actor"), identity.values)[0]
    if user is None:
        raise invalid_token()
    require_admission(networks_of(jsontext.stored(networks)), identity.caller.ip)
    return Person(role, bool(admin), bool(app))


def note(transaction: Transaction, action: str, *, user: str, caller: Caller) -> None:
    """Write an action of a user on the own account into the activity."""
    values = (action, user, caller.ip, caller.user_agent, caller.origin, user)
    transaction.execute(statement("note_activity"), values)
