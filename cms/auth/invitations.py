"""Invitations: an administrator makes users, who choose their passwords themselves."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from cms.auth.accounts import check_email
from cms.auth.mail_links import LinkRecipient, MailLink
from cms.database.connections import Transaction
from cms.database.statements import statement
from cms.errors import Problem, Refused, at_index, collect_problems, invalid_payload
from cms.items.history.recording import recorder
from cms.schema.system import USERS
from cms.store.context import RequestContext
from cms.store.idempotency import Idempotency
from cms.store.identity import ClientInfo, Identity
from cms.store.store import Store, require_admin

MAX_INVITED = 1_000


@dataclass(frozen=True, slots=True)
class Invitation:
    """The people to invite, and their role.

    `url` is the address to which the link of the mail leads; None is the default one.
    """

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
    """Make invited users of a role and send each a link, all or none.

    Users who are invited already get a new link. Raises `Refused`: FORBIDDEN, INVALID_PAYLOAD,
    INVALID_FOREIGN_KEY for an unknown role, RECORD_NOT_UNIQUE for addresses that belong to
    accounts.
    """
    address = link.address(invitation.url)
    send_invitations = partial(_invite, link, address, invitation, identity.client)
    store.run_in_transaction(identity, send_invitations, idempotency=idempotency)


def _invite(
    link: MailLink,
    address: str,
    invitation: Invitation,
    client: ClientInfo,
    transaction: Transaction,
    context: RequestContext,
) -> None:
    # First of all: who may not invite learns nothing of the addresses.
    require_admin(context.actor)
    emails = checked_emails(invitation.emails, field="email")
    catalogue = context.snapshot.catalogue
    users = recorder(transaction, catalogue, USERS, user=context.actor.user, client=client)
    invited_before = transaction.execute(statement("find_invited"), (emails,))
    before = users.before([user for (user,) in invited_before])
    rows = transaction.execute(statement("invite_users"), (emails, invitation.role))
    invited = [LinkRecipient(*row) for row in rows]
    # The rest was invited before, and has a new role now.
    users.created([recipient.user for recipient in invited if recipient.user not in before])
    users.changed(before)
    # The statement leaves out addresses of accounts: what it did not return is taken.
    _refuse_taken(emails, {recipient.email.lower() for recipient in invited})
    for recipient in invited:
        link.send(transaction, address, recipient)


def checked_emails(emails: Sequence[str], *, field: str) -> list[str]:
    """Return the addresses to invite, of a field; raises `Refused` INVALID_PAYLOAD."""
    if not 0 < len(emails) <= MAX_INVITED:
        raise invalid_payload(f"1 to {MAX_INVITED} users can be invited at a time", field=field)
    problems: list[Problem] = []
    for index, email in enumerate(emails):
        email_problems: list[Problem] = []
        collect_problems(email_problems, partial(check_email, email))
        # All wrong addresses come in one answer, each with its place in the list.
        problems += at_index(email_problems, index, count=len(emails))
    if problems:
        raise Refused(problems)
    return list(emails)


def _refuse_taken(emails: Sequence[str], invited: set[str]) -> None:
    problems = [
        _email_taken(email, index)
        for index, email in enumerate(emails)
        if email.lower() not in invited
    ]
    if problems:
        raise Refused(problems)


def _email_taken(email: str, index: int) -> Problem:
    extensions = {"collection": USERS, "field": "email", "value": email, "index": index}
    return Problem("RECORD_NOT_UNIQUE", f"There is a user {email} already.", extensions)
