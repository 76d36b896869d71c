"""Shares used: logins without a user, and invitations (docs/shares.md)."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

from cms import passwords
from cms.auth import account_mail
from cms.auth.account_mail import AccountMail
from cms.auth.invitations import checked_emails
from cms.auth.mail_links import MailLink
from cms.auth.sessions import IssuedTokens, Issuer, Mode, invalid_credentials, open_share_session
from cms.auth.transactions import in_transaction
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
    share = _parse_id(credentials.share) or str(uuid.uuid4())
    stored = _check_password(store, share, credentials.password or "")
    return in_transaction(store, partial(_log_in, issuer, share, stored, mode, client))


def _check_password(store: Store, share: str, password: str) -> str | None:
    """Compare a password with that of a share, and return the stored one; None if the share has none.

    Raises `Refused` INVALID_CREDENTIALS. Wrong ones are counted, and callers have to wait after too
    many.
    """
    rows = store.database.fetch_primary(statement("find_share_password"), (share,))
    stored: str | None = None
    is_throttled = False
    if rows:
        _, stored, is_throttled = rows[0]
    matches = passwords.matches(stored, password)
    # A share without a password; the comparison is made all the same, so that the time tells
    # nothing.
    is_open = bool(rows) and stored is None
    if is_throttled or not (matches or is_open):
        store.database.fetch_primary(statement("count_failed_share_login"), (share,))
        raise invalid_credentials()
    return stored


def _log_in(
    issuer: Issuer,
    share: str,
    password: str | None,
    mode: Mode,
    client: ClientInfo,
    transaction: Transaction,
) -> IssuedTokens:
    # The statement looks at everything again: another call may have had the last use.
    if not transaction.execute(statement("use_share"), (share, password)):
        raise invalid_credentials()
    return open_share_session(transaction, issuer, share, mode=mode, client=client)


def info(store: Store, key: str) -> Mapping[str, object]:
    """Return what everybody may know of a share; raises `Refused` FORBIDDEN where there is none.

    The password is masked, or None for a share without one.
    """
    share = _parse_id(key)
    if share is None:
        raise forbidden()
    rows = store.database.fetch_primary(statement("find_share_info"), (share,))
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
    address = link.address(invitation.url)
    send_links = partial(_invite, link, address, invitation)
    store.run_in_transaction(identity, send_links, idempotency=idempotency)


def _invite(
    link: MailLink,
    address: str,
    invitation: ShareInvitation,
    transaction: Transaction,
    context: RequestContext,
) -> None:
    share = _parse_id(invitation.share)
    if share is None:
        raise forbidden()
    rows = transaction.execute(statement("find_share_for_invitation"), (share,))
    if not rows or not _may_invite(context, rows[0][1]):
        raise forbidden()
    name = rows[0][0]
    emails = checked_emails(invitation.emails, field="emails")
    data = {"url": _url(address, share), "name": name or ""}
    for email in emails:
        account_mail.send(transaction, AccountMail(email, link.template, data))


def _may_invite(context: RequestContext, creator: str | None) -> bool:
    actor = context.actor
    return actor.policy.is_admin or (actor.user is not None and actor.user == creator)


def _url(address: str, share: str) -> str:
    base, separator, query = address.partition("?")
    return f"{base.rstrip('/')}/{share}{separator}{query}"


def _parse_id(text: str) -> str | None:
    try:
        return str(uuid.UUID(text))
    except ValueError:
        return None
