"""Forgotten passwords: a mail with a link, and the new password that the link or an invitation
sets.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass, field

from cms import passwords
from cms.auth import account_mail
from cms.auth.account_mail import RESET, AccountMail, fingerprint_of
from cms.auth.mail_links import MailLink
from cms.auth.sessions import end_sessions, in_transaction, made_idempotent
from cms.auth.tokens import used_link
from cms.database.connections import Transaction
from cms.database.statements import statement
from cms.errors import invalid_token
from cms.items.history.recording import recorder
from cms.schema.system import USERS
from cms.store.idempotency import Idempotency
from cms.store.identity import ClientInfo
from cms.store.store import Store


def request_reset(store: Store, link: MailLink, *, email: str, url: str | None) -> None:
    """Send an active user a link to set a new password.

    For any other address the same work is done and nothing is sent, so that nobody learns of
    accounts.
    """
    address = link.address(url)

    def work(transaction: Transaction) -> None:
        rows = transaction.execute(statement("find_active_account"), (email,))
        if rows:
            user, to, password = rows[0]
        else:  # a token is made and a mail queued all the same: the time tells nothing
            user = str(uuid.uuid4())
            to = None
            password = None
        url = link.to(address, user=user, fingerprint=fingerprint_of(to, password))
        data = {"url": url, "email": to or email}
        account_mail.send(transaction, AccountMail(to, RESET, data))

    in_transaction(store, work)


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
    user, fingerprint = link.read(new_password.token)
    passwords.check_password(new_password.password, policy=password_policy(store))
    # Hashed before the transaction: hashing is slow on purpose, and locks must not wait for it.
    new_hash = passwords.hashed(new_password.password)

    def work(transaction: Transaction) -> None:
        rows = transaction.execute(statement("lock_account"), (user,))
        if not rows:
            raise invalid_token()
        _, email, status, old_hash, _ = rows[0]
        # Setting the password changes the fingerprint: that is what makes the link good only once.
        if fingerprint != fingerprint_of(email, old_hash):
            raise used_link()
        # An invitation is no way to a new password once the user has accepted it, nor the reverse.
        if status != new_password.status:
            raise invalid_token()
        catalogue = store.snapshots.current().catalogue
        users = recorder(transaction, catalogue, USERS, user=user, client=client)
        before = users.before([user])
        transaction.execute(statement("change_password"), (user, new_hash))
        end_sessions(transaction, user)
        users.changed(before)

    in_transaction(store, made_idempotent(client, idempotency, work))


def password_policy(store: Store) -> str | None:
    """Return the regular expression that new passwords have to match."""
    rows = store.database.fetch_primary(statement("find_password_policy"))
    policy: str | None = rows[0][0] if rows else None
    return policy
