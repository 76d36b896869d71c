"""Invitations: users that somebody makes, and who choose their password themselves (specification, section 4.11)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from cms.auth import letters
from cms.auth.accounts import check_email
from cms.auth.letters import INVITATION, Letter, mark_of
from cms.auth.links import Link
from cms.errors import Problem, Refused, collected, invalid_payload, numbered
from cms.store.database import Transaction
from cms.store.once import Once
from cms.store.recording import recorder
from cms.store.statements import statement
from cms.store.store import Identity, Job, Scene, Store, require_admin

MOST_INVITED = 1_000


@dataclass(frozen=True, slots=True)
class Invitation:
    """Whom to invite, to which role, and where the link of the letter leads, when it is not the usual place."""

    emails: Sequence[str]
    role: str
    url: str | None = None


def invite(store: Store, link: Link, identity: Identity, invitation: Invitation, *, once: Once | None = None) -> None:
    """Make invited users of a role and send each a link, all or none; who is invited already is invited again.

    Raises `Refused`: FORBIDDEN, INVALID_PAYLOAD, INVALID_FOREIGN_KEY for no such role, RECORD_NOT_UNIQUE for
    addresses that belong to accounts.
    """
    address = link.address(invitation.url)
    emails = invitation.emails

    def work(transaction: Transaction, scene: Scene) -> None:
        require_admin(scene.actor)
        wanted = _wanted(emails)
        catalogue, who = scene.snapshot.catalogue, scene.actor.user
        users = recorder(transaction, catalogue, "system_users", user=who, caller=identity.caller)
        before = users.before([user for (user,) in transaction.execute(statement("find_invited"), (wanted,))])
        made = transaction.execute(statement("invite_users"), (wanted, invitation.role))
        users.created([user for user, _, _ in made if user not in before])
        users.changed(before)
        _refuse_taken(emails, {str(email).lower() for _, email, _ in made})
        for user, email, password in made:
            target = link.to(address, user=user, mark=mark_of(email, password))
            letters.send(transaction, Letter(email, INVITATION, {"url": target, "email": email}))

    store.writing(identity, lambda scene: Job(lambda transaction: work(transaction, scene)), once=once)


def _wanted(emails: Sequence[str]) -> list[str]:
    """Return the addresses to invite; raises `Refused` INVALID_PAYLOAD."""
    if not 0 < len(emails) <= MOST_INVITED:
        raise invalid_payload(f"1 to {MOST_INVITED} users can be invited at a time", field="email")
    problems: list[Problem] = []
    for index, email in enumerate(emails):
        faults: list[Problem] = []
        collected(faults, partial(check_email, email))
        problems += numbered(faults, index, of=len(emails))
    if problems:
        raise Refused(problems)
    return list(emails)


def _place(email: str, index: int) -> dict[str, object]:
    return {"collection": "system_users", "field": "email", "value": email, "index": index}


def _refuse_taken(emails: Sequence[str], made: set[str]) -> None:
    problems = [
        Problem("RECORD_NOT_UNIQUE", f"There is a user {email} already.", _place(email, index))
        for index, email in enumerate(emails)
        if email.lower() not in made
    ]
    if problems:
        raise Refused(problems)
