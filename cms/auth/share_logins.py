"""Shares used: logins without a user, and invitations (docs/shares.md)."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from cms.auth import mail_links
from cms.auth.account_transactions import account_attempts
from cms.auth.invitations import checked_emails
from cms.auth.mail_links import AccountMail, MailLink
from cms.auth.sessions import IssuedTokens, Issuer, Mode, invalid_credentials, open_share_session
from cms.database.connections import Transaction
from cms.database.statements import statement
from cms.errors import forbidden
from cms.store.context import RequestContext
from cms.store.idempotency import Idempotency
from cms.store.identity import ClientInfo, Identity
from cms.store.store import Store

_INFO_FIELDS = (
    "id",
    "collection",
    "item",
    "password",
    "max_uses",
    "times_used",
    "date_start",
    "date_end",
)


@dataclass(frozen=True, slots=True)
class ShareCredentials:
    """The id of a share and its password, if it has one."""

    share: str
    password: str | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True)
class ShareInvitation:
    """The addresses that get the link of a share.

    `url` is the address to which the id of the share is added; None is the default one.
    """

    share: str
    emails: Sequence[str]
    url: str | None = None


def login(
    store: Store, issuer: Issuer, credentials: ShareCredentials, *, mode: Mode, client: ClientInfo
) -> IssuedTokens:
    """Use a share: count the use and open a session.

    An unknown share takes the same time as a wrong password. Raises `Refused` INVALID_CREDENTIALS
    and, only once the password was right, INVALID_IP.
    """
    # A random id is no share's: the same work is done, and nothing is found.
    share = parse_id(credentials.share) or str(uuid.uuid4())
    password = credentials.password or ""
    issued = _use(store, issuer, share, password, mode=mode, client=client)
    if issued is None:
        # Another login has hashed the password again.
        issued = _use(store, issuer, share, password, mode=mode, client=client)
    if issued is None:
        raise invalid_credentials()
    return issued


def _use(
    store: Store, issuer: Issuer, share: str, password: str, *, mode: Mode, client: ClientInfo
) -> IssuedTokens | None:
    """Open a session; None where the stored hash had older parameters and is another one now."""
    stored = _check_password(store, share, password)
    rehashed = store.passwords.rehashed(stored, password) if stored else None
    for attempt in account_attempts(store):
        with attempt as transaction:
            issued = None
            # The statement looks at everything again: another call may have had the last use.
            if transaction.execute(statement("use_share"), (share, stored, rehashed)):
                issued = open_share_session(transaction, issuer, share, mode=mode, client=client)
    if issued is None and rehashed is None:
        raise invalid_credentials()
    return issued


def _check_password(store: Store, share: str, password: str) -> str | None:
    """Compare a password with that of a share; return the stored one, None if there is none.

    Raises `Refused` INVALID_CREDENTIALS. Wrong ones are counted, and callers have to wait after too
    many.
    """
    rows = store.database.fetch_primary(statement("find_share_password"), (share,))
    stored: str | None = None
    is_throttled = False
    if rows:
        _, stored, is_throttled = rows[0]
        if stored is None and not is_throttled:
            return None  # a share without a password
    # While callers have to wait no password is accepted, and all take the same time.
    compared = None if is_throttled else stored
    if not store.passwords.matches(compared, password, reveals_match=True):
        store.database.fetch_primary(statement("count_failed_share_login"), (share,))
        raise invalid_credentials()
    return stored


def info(store: Store, key: str) -> Mapping[str, object]:
    """Return the public properties of a share; raises `Refused` FORBIDDEN where there is none.

    The password is masked, or None for a share without one.
    """
    share = parse_id(key)
    rows = share and store.database.fetch_primary(statement("find_share_info"), (share,))
    if not rows:
        raise forbidden()
    return dict(zip(_INFO_FIELDS, rows[0], strict=True))


def invite(
    store: Store,
    link: MailLink,
    identity: Identity,
    invitation: ShareInvitation,
    *,
    idempotency: Idempotency | None = None,
) -> None:
    """Mail the link of a share; only its creator and administrators may.

    Raises `Refused`: FORBIDDEN, INVALID_PAYLOAD.
    """
    base, separator, query = link.address(invitation.url).partition("?")
    share = parse_id(invitation.share)
    for attempt in store.write(identity, idempotency=idempotency):
        with attempt as context:
            transaction = attempt.begin_transaction()
            name = _name_for_invitation(transaction, context, share)
            emails = checked_emails(invitation.emails, field="emails")
            data = {"url": f"{base.rstrip('/')}/{share}{separator}{query}", "name": name}
            for email in emails:
                mail_links.send_account_mail(transaction, AccountMail(email, link.template, data))


def _name_for_invitation(
    transaction: Transaction, context: RequestContext, share: str | None
) -> str:
    """Return the name of a share that the caller may invite to; else raise `Refused` FORBIDDEN."""
    actor = context.actor
    rows = share and transaction.execute(statement("find_share_for_invitation"), (share,))
    for name, creator in rows or ():
        if actor.policy.is_admin or (actor.user is not None and actor.user == creator):
            return name or ""
    raise forbidden()


def parse_id(text: str) -> str | None:
    """Return the id of a share in its one form, whatever hyphens and capitals it is written with.

    None for a text that is no id.
    """
    try:
        return str(uuid.UUID(text))
    except ValueError:
        return None
