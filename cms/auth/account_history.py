"""The history of accounts: what users do to their own, and what is done to them without a login."""

from __future__ import annotations

from cms import jsontext
from cms.database.connections import Transaction
from cms.database.statements import statement
from cms.items.history.recording import Recorder, recorder
from cms.schema.system import USERS
from cms.store.identity import ClientInfo
from cms.store.store import Store

LOGIN_EVENT = "auth.login"


def record_activity(
    transaction: Transaction, action: str, *, user: str, client: ClientInfo
) -> None:
    """Record in the activity what a user did to their own account."""
    # The user is the author, and the item as well.
    transaction.execute(statement("record_account_activity"), (action, *client.author(user), user))
    if action == "login":
        _queue_login_runs(transaction, user=user, client=client)


def _queue_login_runs(transaction: Transaction, *, user: str, client: ClientInfo) -> None:
    """Queue a run of each flow that waits for logins."""
    data = jsontext.dumps({"event": LOGIN_EVENT, "payload": {"user": user}}).decode()
    accountability = jsontext.dumps({"user": user, "role": None, "ip": client.ip}).decode()
    transaction.execute(statement("queue_event_runs"), (LOGIN_EVENT, data, accountability, 0))


def user_recorder(
    store: Store, transaction: Transaction, *, client: ClientInfo, user: str | None = None
) -> Recorder:
    """Return a recorder of changes of users, for clients who are not logged in.

    `user` is the author of the changes: None where nobody has proven to be that user.
    """
    # Such calls have no context with a catalogue; that of the process has all system tables.
    catalogue = store.snapshots.current().catalogue
    return recorder(transaction, catalogue, USERS, user=user, client=client)
