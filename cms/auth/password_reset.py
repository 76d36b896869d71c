"""Forgotten passwords: a mail with a link, and the password that is set by a link.

The links of invitations set a password as well.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from cms.auth.account_transactions import account_attempts, user_recorder
from cms.auth.mail_links import LinkedAccount, LinkRecipient, MailLink, lock_linked_account
from cms.auth.sessions import end_sessions
from cms.auth.user_filters import UserFilters, user_writes
from cms.database.connections import Transaction
from cms.database.statements import statement
from cms.errors import invalid_token
from cms.hashing import passwords
from cms.items.history.recording import Recorder
from cms.store.idempotency import Idempotency
from cms.store.identity import ClientInfo
from cms.store.store import Store

INVITED = "invited"
"""The status of a user who has not accepted an invitation yet."""


def request_reset(store: Store, link: MailLink, *, email: str, url: str | None) -> None:
    """Send an active user a link to set a new password.

    For any other address the same work is done and nothing is sent, so that nobody learns of
    accounts.
    """
    # Checked before any lookup, so that the refusal is the same for every email.
    address = link.address(url)
    for attempt in account_attempts(store):
        with attempt as transaction:
            # Accounts of other statuses get nothing: a suspended user must not come back by mail.
            rows = transaction.execute(statement("find_active_account"), (email,))
            recipient = LinkRecipient(*rows[0]) if rows else LinkRecipient.nobody(email)
            link.send(transaction, address, recipient)


@dataclass(frozen=True, slots=True)
class NewPassword:
    """A new password with the token of its link.

    `status` is the status that the user must have: active, or invited.
    """

    token: str = field(repr=False)
    password: str = field(repr=False)
    status: str


def set_password(
    store: Store,
    link: MailLink,
    new_password: NewPassword,
    *,
    client: ClientInfo,
    idempotency: Idempotency | None = None,
) -> None:
    """Set the password of the user whom a link was sent to, and end all sessions of that user.

    A user who was invited becomes active. Raises `Refused` INVALID_TOKEN, with a reason for a link
    that was used already, and whatever `check_password` raises.
    """
    token = link.read(new_password.token)
    passwords.check_password(new_password.password, policy=password_policy(store))
    # Hashed before the transaction: hashing is slow on purpose, and locks must not wait for it.
    new_hash = store.passwords.hashed(new_password.password)
    for attempt in user_writes(store, verb="update", client=client, idempotency=idempotency):
        with attempt as transaction:
            # The new password changes the fingerprint, so that the link works only once.
            account = lock_linked_account(transaction, token)
            # An invitation is no way to a new password once the user has accepted it, nor the
            # reverse.
            if account.status != new_password.status:
                raise invalid_token()
            users = user_recorder(store, transaction, user=account.id, client=client)
            _change_password(transaction, attempt.filters, users, account, new_hash)


def _change_password(
    transaction: Transaction,
    filters: UserFilters,
    users: Recorder,
    account: LinkedAccount,
    new_hash: str,
) -> None:
    # A new password alone is no event: it is a secret, and nothing else changes.
    accepted = None
    if account.status == INVITED:
        accepted = filters.changed(account.id, {"status": "active"})
    before = users.before([account.id])
    transaction.execute(statement("change_password"), (account.id, new_hash))
    if accepted:
        accepted.set_profile(transaction, account.id)
    # Somebody who knew the old password may be logged in.
    end_sessions(transaction, account.id)
    users.changed(before)
    if accepted:
        filters.queue_runs(account.id, accepted)


def password_policy(store: Store) -> str | None:
    """Return the regular expression that new passwords have to match."""
    rows = store.database.fetch_primary(statement("find_password_policy"))
    policy: str | None = rows[0][0] if rows else None
    return policy
