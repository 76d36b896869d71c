"""Forgotten passwords: a mail with a link, and the password that is set by a link.

The links of invitations set a password as well.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial

from cms.auth.account_history import user_recorder
from cms.auth.mail_links import LinkRecipient, MailLink, lock_linked_account
from cms.auth.sessions import end_sessions
from cms.auth.tokens import LinkToken
from cms.auth.transactions import in_transaction
from cms.auth.user_filters import UserFilters, write_user
from cms.database.connections import Transaction
from cms.database.statements import statement
from cms.errors import invalid_token
from cms.hashing import passwords
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
    in_transaction(store, partial(_send_link, link=link, address=address, email=email))


def _send_link(transaction: Transaction, *, link: MailLink, address: str, email: str) -> None:
    # Accounts of other statuses get nothing: a suspended user must not come back by mail.
    rows = transaction.execute(statement("find_active_account"), (email,))
    if rows:
        recipient = LinkRecipient(*rows[0])
    else:
        recipient = LinkRecipient.nobody(email)
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
    change = _PasswordChange(token, new_hash, new_password.status)
    change_password = partial(_change_password, store, change, client)
    write_user(store, change_password, verb="update", client=client, idempotency=idempotency)


@dataclass(frozen=True, slots=True)
class _PasswordChange:
    """A new password, hashed, for the user of a link, who must have this status."""

    token: LinkToken
    new_hash: str = field(repr=False)
    status: str


def _change_password(
    store: Store,
    change: _PasswordChange,
    client: ClientInfo,
    transaction: Transaction,
    filters: UserFilters,
) -> None:
    # The new password changes the fingerprint, so that the link works only once.
    account = lock_linked_account(transaction, change.token)
    # An invitation is no way to a new password once the user has accepted it, nor the reverse.
    if account.status != change.status:
        raise invalid_token()
    # A new password alone is no event: it is a secret, and nothing else changes.
    accepted = None
    if change.status == INVITED:
        accepted = filters.changed(account.id, {"status": "active"})
    users = user_recorder(store, transaction, user=account.id, client=client)
    before = users.before([account.id])
    transaction.execute(statement("change_password"), (account.id, change.new_hash))
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
