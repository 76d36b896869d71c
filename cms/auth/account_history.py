"""The history of accounts: changes by users of their own account, and changes without a login."""

from __future__ import annotations

from cms.database.connections import Transaction
from cms.database.statements import statement
from cms.items.history.recording import Recorder, recorder
from cms.schema.system import USERS
from cms.store.identity import ClientInfo
from cms.store.store import Store


def record_activity(
    transaction: Transaction,
    action: str,
    *,
    user: str,
    client: ClientInfo,
    comment: str | None = None,
) -> None:
    """Record an action of a user on their own account as activity; a login is an event of flows."""
    # The user is the author, and the item as well.
    values = (action, *client.author(user), user, comment)
    transaction.execute(statement("record_account_activity"), values)
    if action == "login":
        transaction.execute(statement("queue_login_runs"), (user, client.ip))


def user_recorder(
    store: Store, transaction: Transaction, *, client: ClientInfo, user: str | None = None
) -> Recorder:
    """Return a recorder of changes of users, for clients who are not logged in.

    `user` is the author of the changes: None where nobody has proven to be that user.
    """
    # Such calls have no context with a catalogue; that of the process has all system tables.
    catalogue = store.snapshots.current().catalogue
    return recorder(transaction, catalogue, USERS, user=user, client=client)
