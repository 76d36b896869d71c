"""Invitations: users that somebody makes, and who choose their password themselves (specification, section 4.11)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from cms.auth import account_mail
from cms.auth.account_mail import INVITATION, AccountMail, fingerprint_of
from cms.auth.accounts import check_email
from cms.auth.links import MailLink
from cms.database.connections import Transaction
from cms.database.statements import statement
from cms.errors import Problem, Refused, at_index, collect_problems, invalid_payload
from cms.items.history.recording import recorder
from cms.store.context import RequestContext
from cms.store.idempotency import Idempotency
from cms.store.identity import Identity
from cms.store.store import Store, WritePlan, require_admin

MAX_INVITED = 1_000


@dataclass(frozen=True, slots=True)
class Invitation:
    """Whom to invite, to which role, and where the link of the letter leads, when it is not the usual place."""

    emails: Sequence[str]
    role: str
    url: str | None = None


def invite(
    store: Store,
    link: MailLink,
    identity: Identity,
    invitation: Invitation,
    *,
    idempotency: Idempotency | None = None,
) -> None:
    """Make invited users of a role and send each a link, all or none; who is invited already is invited again.

    Raises `Refused`: FORBIDDEN, INVALID_PAYLOAD, INVALID_FOREIGN_KEY for no such role, RECORD_NOT_UNIQUE for
    addresses that belong to accounts.
    """
    address = link.address(invitation.url)
    emails = invitation.emails

    def work(transaction: Transaction, context: RequestContext) -> None:
        require_admin(context.actor)
        wanted = _checked_emails(emails)
        catalogue, who = context.snapshot.catalogue, context.actor.user
        users = recorder(transaction, catalogue, "system_users", user=who, client=identity.client)
        before = users.before(
            [user for (user,) in transaction.execute(statement("find_invited"), (wanted,))]
        )
        made = transaction.execute(statement("invite_users"), (wanted, invitation.role))
        users.created([user for user, _, _ in made if user not in before])
        users.changed(before)
        _refuse_taken(emails, {str(email).lower() for _, email, _ in made})
        for user, email, password in made:
            target = link.to(address, user=user, fingerprint=fingerprint_of(email, password))
            account_mail.send(
                transaction, AccountMail(email, INVITATION, {"url": target, "email": email})
            )

    store.run_write(
        identity,
        lambda context: WritePlan(lambda transaction: work(transaction, context)),
        idempotency=idempotency,
    )


def _checked_emails(emails: Sequence[str]) -> list[str]:
    """Return the addresses to invite; raises `Refused` INVALID_PAYLOAD."""
    if not 0 < len(emails) <= MAX_INVITED:
        raise invalid_payload(f"1 to {MAX_INVITED} users can be invited at a time", field="email")
    problems: list[Problem] = []
    for index, email in enumerate(emails):
        faults: list[Problem] = []
        collect_problems(faults, partial(check_email, email))
        problems += at_index(faults, index, count=len(emails))
    if problems:
        raise Refused(problems)
    return list(emails)


def _email_extensions(email: str, index: int) -> dict[str, object]:
    return {"collection": "system_users", "field": "email", "value": email, "index": index}


def _refuse_taken(emails: Sequence[str], made: set[str]) -> None:
    problems = [
        Problem(
            "RECORD_NOT_UNIQUE",
            f"There is a user {email} already.",
            _email_extensions(email, index),
        )
        for index, email in enumerate(emails)
        if email.lower() not in made
    ]
    if problems:
        raise Refused(problems)
