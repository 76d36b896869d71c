"""Letters to users: the one place that hands them to the mail."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field

from cms.database.connections import Transaction
from cms.emails import is_email
from cms.mail.post import Mail, post, post_decoy

RESET = "password-reset"
INVITATION = "user-invitation"
REGISTRATION = "user-registration"


@dataclass(frozen=True, slots=True)
class AccountMail:
    """A letter from a template with its values (`url`, `email`, and the like), kept out of every log.

    `to` nobody is a letter that is not sent and costs the same: who asks must not learn whether there is an account.
    """

    to: str | None
    template: str
    data: Mapping[str, str] = field(repr=False)


def send(transaction: Transaction, mail: AccountMail) -> None:
    """Send a letter when the transaction commits; to an address that no mail reaches, as to nobody."""
    if mail.to and is_email(mail.to):
        post(transaction, Mail([mail.to], mail.template, mail.data))
    else:
        post_decoy(transaction, Mail([], mail.template, mail.data))


def fingerprint_of(email: str | None, password: str | None) -> str:
    """Return what a link is good for: it dies when the address or the password of its account changes."""
    return hashlib.sha256(f"{email}\n{password}".encode()).hexdigest()[:32]
