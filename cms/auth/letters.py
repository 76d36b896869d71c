"""Letters to users: the one place that hands them to the mail."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field

from cms.emails import is_email
from cms.mail.post import Mail, post, post_to_nobody
from cms.store.database import Transaction

RESET = "password-reset"
INVITATION = "user-invitation"
REGISTRATION = "user-registration"


@dataclass(frozen=True, slots=True)
class Letter:
    """A letter from a template with its values (`url`, `email`, and the like), kept out of every log.

    `to` nobody is a letter that is not sent and costs the same: who asks must not learn whether there is an account.
    """

    to: str | None
    template: str
    data: Mapping[str, str] = field(repr=False)


def send(transaction: Transaction, letter: Letter) -> None:
    """Send a letter when the transaction commits; to an address that no mail reaches, as to nobody."""
    if letter.to and is_email(letter.to):
        post(transaction, Mail([letter.to], letter.template, letter.data))
    else:
        post_to_nobody(transaction, Mail([], letter.template, letter.data))


def mark_of(email: str | None, password: str | None) -> str:
    """Return what a link is good for: it dies when the address or the password of its account changes."""
    return hashlib.sha256(f"{email}\n{password}".encode()).hexdigest()[:32]
