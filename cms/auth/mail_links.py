"""Mails about accounts, and their links.

Links lead to addresses that the settings allow, never to one that a request made up.
"""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from urllib.parse import parse_qs, urlencode

from cms.auth import tokens
from cms.auth.tokens import LinkToken
from cms.config import Config
from cms.database.connections import Transaction
from cms.database.statements import statement
from cms.emails import is_email
from cms.errors import invalid_payload, invalid_token
from cms.mail.mail_queue import Mail, post, post_decoy

RESET = "password-reset"
INVITATION = "user-invitation"
REGISTRATION = "user-registration"
SHARE = "share"


@dataclass(frozen=True, slots=True)
class LinkRecipient:
    """The account that a link is for, with its hashed password, and the address of its mail.

    Without an account (`has_account`) the same work is done and nothing is sent: the caller must
    not learn whether there is one.
    """

    user: str
    email: str
    password: str | None = field(repr=False)
    has_account: bool = True

    @classmethod
    def nobody(cls, email: str, *, password: str | None = None) -> LinkRecipient:
        """Return a recipient without an account; the random id is no user's."""
        return cls(str(uuid.uuid4()), email, password, has_account=False)


@dataclass(frozen=True, slots=True)
class LinkedAccount:
    """The row of the statement `lock_account`, for the account that a link was sent to."""

    id: str
    email: str | None
    status: str
    password: str | None = field(repr=False)
    is_unverified: bool


def lock_linked_account(transaction: Transaction, token: LinkToken) -> LinkedAccount:
    """Return the account of a link, locked until the transaction ends.

    Raises `Refused` INVALID_TOKEN, with a reason where the account has changed since the link was
    sent.
    """
    rows = transaction.execute(statement("lock_account"), (token.user,))
    if not rows:
        raise invalid_token()
    account = LinkedAccount(*rows[0])
    # Under the lock: of two requests with one link, the second sees what the first has changed.
    if token.fingerprint != fingerprint_of(account.email, account.password):
        raise tokens.used_link()
    return account


@dataclass(frozen=True, slots=True)
class MailLink:
    """One kind of link, and the template of the mails that hold it.

    `url_field` is the field of requests that names the link's address; without it the link leads to
    `default_url`.
    """

    purpose: str
    template: str
    url_field: str
    default_url: str
    allowed_urls: tuple[str, ...]
    life: timedelta
    secret: str = field(repr=False)

    def address(self, url: str | None) -> str:
        """Return where the link leads: `url`, or the default address without one.

        `url` may differ from an address on the list of the settings in its query string only, and
        must not hold a token: the service puts its own there. Raises `Refused` INVALID_PAYLOAD.
        """
        if url is None:
            return self.default_url
        if not self._is_allowed(url):
            raise invalid_payload(
                f'"{self.url_field}" is not on the list of allowed addresses', field=self.url_field
            )
        return url

    def _is_allowed(self, url: str) -> bool:
        # Browsers and parsers disagree on such characters, so that a link might lead elsewhere.
        if not url.isascii() or not url.isprintable() or set(url) & {" ", "#", "\\"}:
            return False
        base, _, query = url.partition("?")
        # A slash at the end makes no other address.
        if base.rstrip("/") not in self.allowed_urls:
            return False
        # With two tokens in the address it would depend on the page which one it takes.
        return "token" not in parse_qs(query, keep_blank_values=True)

    def send(self, transaction: Transaction, address: str, recipient: LinkRecipient) -> None:
        """Send a mail with the link when the transaction commits."""
        data = {"url": self._url(address, recipient), "email": recipient.email}
        to = recipient.email if recipient.has_account else None
        send_account_mail(transaction, AccountMail(to, self.template, data))

    def _url(self, address: str, recipient: LinkRecipient) -> str:
        """Return the link for a recipient, good until the fingerprint of the account changes."""
        token = tokens.link_token(
            self.purpose,
            user=recipient.user,
            fingerprint=fingerprint_of(recipient.email, recipient.password),
            secret=self.secret,
            life=self.life,
        )
        separator = "&" if "?" in address else "?"
        return f"{address}{separator}{urlencode({'token': token})}"

    def read(self, token: str) -> LinkToken:
        """Return the contents of a link's token; raises `Refused` INVALID_TOKEN."""
        return tokens.read_link_token(self.purpose, token, secret=self.secret)


@dataclass(frozen=True, slots=True)
class MailLinks:
    """The links that the service writes."""

    reset: MailLink
    invite: MailLink
    register: MailLink
    share: MailLink

    @classmethod
    def from_config(cls, config: Config, secret: str) -> MailLinks:
        """Return the links of the settings."""
        admin = f"{config.public_url}/admin"
        return cls(
            reset=MailLink(
                "password-reset",
                RESET,
                "reset_url",
                f"{admin}/reset-password",
                config.password_reset_url_allow_list,
                config.password_reset_ttl,
                secret,
            ),
            invite=MailLink(
                "invite",
                INVITATION,
                "invite_url",
                f"{admin}/accept-invite",
                config.user_invite_url_allow_list,
                config.user_invite_ttl,
                secret,
            ),
            register=MailLink(
                "register",
                REGISTRATION,
                "verification_url",
                f"{config.public_url}/users/register/verify-email",
                config.user_register_url_allow_list,
                config.user_register_ttl,
                secret,
            ),
            # Its links hold no token: the share has a password and an end of its own.
            share=MailLink(
                "share",
                SHARE,
                "share_url",
                f"{admin}/shared",
                config.share_url_allow_list,
                config.user_invite_ttl,
                secret,
            ),
        )


@dataclass(frozen=True, slots=True)
class AccountMail:
    """A mail from a template with its values (`url`, `email`, and the like).

    The values hold a secret link, so they stay out of every log. A mail without `to` is not sent
    but costs the same work: the caller must not learn whether there is an account.
    """

    to: str | None
    template: str
    data: Mapping[str, str] = field(repr=False)


def send_account_mail(transaction: Transaction, mail: AccountMail) -> None:
    """Send a mail when the transaction commits; an address that no mail reaches gets none."""
    # Addresses can also come from imports and other programs, and so be of any form.
    if mail.to and is_email(mail.to):
        post(transaction.execute, Mail([mail.to], mail.template, mail.data))
    else:
        post_decoy(transaction.execute, Mail([], mail.template, mail.data))


def fingerprint_of(email: str | None, password: str | None) -> str:
    """Return a digest that changes with an account's address or password; links to it then end."""
    # 128 bits, which keep the address in a mail short.
    return hashlib.sha256(f"{email}\n{password}".encode()).hexdigest()[:32]
