"""Invitations: an administrator makes users, who choose their passwords themselves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass

from cms.auth.accounts import check_email
from cms.auth.mail_links import LinkRecipient, MailLink
from cms.auth.user_filters import FilteredUser, UserFilters, user_filters
from cms.database.connections import Transaction
from cms.database.statements import statement
from cms.errors import Problem, Refused, at_index, invalid_payload
from cms.items.history.recording import Recorder, recorder
from cms.schema.system import USERS
from cms.store.idempotency import Idempotency
from cms.store.identity import Identity
from cms.store.store import Store
from cms.store.write_attempts import require_admin

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
    for attempt in store.write(identity, idempotency=idempotency):
        with attempt as context:
            # First of all: callers who may not invite must learn nothing about the addresses.
            require_admin(context.actor)
            transaction = attempt.begin_transaction()
            filters = user_filters(store, identity.client, transaction, context)
            users = recorder(
                transaction,
                context.snapshot.catalogue,
                USERS,
                user=context.actor.user,
                client=identity.client,
            )
            for recipient in _invite(transaction, invitation, filters, users):
                link.send(transaction, address, recipient)


def _invite(
    transaction: Transaction, invitation: Invitation, filters: UserFilters, users: Recorder
) -> list[LinkRecipient]:
    """Write the users of an invitation, and return them."""
    emails = checked_emails(invitation.emails, field="email")
    accounts = transaction.execute(statement("find_invited"), (emails,))
    earlier = {email.lower(): user for user, email, is_invited in accounts if is_invited}
    # The difference of the sets: accounts that are not invited ones. Addresses are compared in
    # small letters, as the unique index of users does.
    _refuse_taken(emails, {email.lower() for _, email, _ in accounts} - earlier.keys())
    # Before the write: the history compares with these.
    before = users.before(list(earlier.values()))
    filtered = _filtered_users(filters, emails, invitation.role, earlier)
    # From the payloads: a flow may have changed the capitals of an address.
    addresses = [str(user.payload["email"]) for user in filtered.values()]
    rows = transaction.execute(statement("invite_users"), (addresses, invitation.role))
    invited = [LinkRecipient(*row) for row in rows]
    # The statement leaves out accounts that were made meanwhile.
    _refuse_taken(emails, filtered.keys() - {recipient.email.lower() for recipient in invited})
    for recipient in invited:
        filtered[recipient.email.lower()].set_profile(transaction, recipient.user)
    # The rest was invited before, and has a new role now.
    users.created([recipient.user for recipient in invited if recipient.user not in before])
    users.changed(before)
    return invited


def checked_emails(emails: Sequence[str], *, field: str) -> list[str]:
    """Return the addresses to invite, of a field; raises `Refused` INVALID_PAYLOAD."""
    if not 0 < len(emails) <= MAX_INVITED:
        raise invalid_payload(f"1 to {MAX_INVITED} users can be invited at a time", field=field)
    problems: list[Problem] = []
    for index, email in enumerate(emails):
        try:
            check_email(email)
        except Refused as refused:
            # All wrong addresses come in one answer, each with its position in the list.
            problems += at_index(refused.problems, index, count=len(emails))
    if problems:
        raise Refused(problems)
    return list(emails)


def _filtered_users(
    filters: UserFilters, emails: Sequence[str], role: str, earlier: Mapping[str, str]
) -> dict[str, FilteredUser]:
    """Return invited users as flows change them, by their addresses in small letters.

    `earlier` are the users who are invited again, by the same keys.
    """
    users: dict[str, FilteredUser] = {}
    for email in emails:
        name = email.lower()
        # The same address twice is one user, whatever its capitals.
        if name in users:
            continue
        if name in earlier:
            change = filters.changed(earlier[name], {"role": role})
            users[name] = change._replace(payload={**change.payload, "email": email})
        else:
            users[name] = filters.new({"email": email, "role": role, "status": "invited"})
    return users


def _refuse_taken(emails: Sequence[str], taken: Set[str]) -> None:
    problems: list[Problem] = []
    for index, email in enumerate(emails):
        if email.lower() in taken:
            extensions = {"collection": USERS, "field": "email", "value": email, "index": index}
            sentence = f"There is a user {email} already."
            problems.append(Problem("RECORD_NOT_UNIQUE", sentence, extensions))
    if problems:
        raise Refused(problems)
