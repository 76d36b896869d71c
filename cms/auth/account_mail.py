"""Mails about accounts: the one place that hands them to `cms/mail`."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field

from cms.database.connections import Transaction
from cms.emails import is_email
from cms.mail.mail_queue import Mail, post, post_decoy

RESET = "password-reset"
INVITATION = "user-invitation"
REGISTRATION = "user-registration"
SHARE = "share"


@dataclass(frozen=True, slots=True)
class AccountMail:
    """A mail from a template with its values (`url`, `email`, and the like).

    The values hold a secret link, so they stay out of every log. A mail without `to` is not sent
    but costs the same work: the caller must not learn whether there is an account.
    """

    to: str | None
    template: str
    data: Mapping[str, str] = field(repr=False)


def send(transaction: Transaction, mail: AccountMail) -> None:
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
