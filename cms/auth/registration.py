"""Public registration, when the settings open it (decisions, sections 9 and 15)."""

from __future__ import annotations

import uuid
from dataclasses import dataclass, field

from cms import jsontext, passwords
from cms.auth import account_mail
from cms.auth.account_mail import REGISTRATION, AccountMail, fingerprint_of
from cms.auth.accounts import check_email
from cms.auth.links import MailLink
from cms.auth.sessions import in_transaction, made_idempotent
from cms.auth.tokens import invalid_token, used_link
from cms.database.connections import Transaction
from cms.database.statements import statement
from cms.errors import Refused, forbidden
from cms.items.history.recording import Recorder, recorder
from cms.query.rules.validation import RuleContext, failures, parse_rule
from cms.store.idempotency import Idempotency
from cms.store.identity import ClientInfo
from cms.store.store import Store


@dataclass(frozen=True, slots=True)
class RegistrationForm:
    """What somebody registers with."""

    email: str
    password: str = field(repr=False)
    first_name: str | None = None
    last_name: str | None = None
    verification_url: str | None = None


@dataclass(frozen=True, slots=True)
class RegistrationSettings:
    """What the settings say of registration."""

    is_open: bool
    role: str | None
    verify: bool
    emails: str | None
    policy: str | None


def register(
    store: Store,
    link: MailLink,
    form: RegistrationForm,
    *,
    client: ClientInfo,
    idempotency: Idempotency | None = None,
) -> None:
    """Make a user, and send the link that opens the account where the settings ask for it.

    For an address that has an account the same is done and nothing comes of it. Of two registrations of one address
    either may be somebody else's, who waits for the owner to follow the link: with different passwords neither counts.
    Raises `Refused` FORBIDDEN when registration is closed or not for that address, and what `check_password` does.
    """
    settings = RegistrationSettings(
        *store.database.fetch_primary(statement("find_registration"))[0]
    )
    if not settings.is_open:
        raise forbidden()
    address = link.address(form.verification_url)
    check_email(form.email)
    if not _is_address_allowed(settings.emails, form.email):
        raise forbidden()
    passwords.check_password(form.password, policy=settings.policy)
    before, new = _earlier_hash(store, form), passwords.hashed(form.password)
    row = (form.email, new, form.first_name, form.last_name, settings.role, settings.verify)

    def work(transaction: Transaction) -> None:
        again = [
            user for (user,) in transaction.execute(statement("find_registered"), (form.email,))
        ]
        was = _recorder(store, transaction, None, client).before(again)
        made = transaction.execute(statement("register_user"), (*row, before))
        user, to, password = made[0] if made else (str(uuid.uuid4()), None, new)
        users = _recorder(store, transaction, user, client)
        users.created([user for user, *_ in made if user not in was])
        users.changed(was)
        if settings.verify:
            target = link.to(address, user=user, fingerprint=fingerprint_of(form.email, password))
            account_mail.send(
                transaction, AccountMail(to, REGISTRATION, {"url": target, "email": form.email})
            )

    in_transaction(store, made_idempotent(client, idempotency, work))


def _earlier_hash(store: Store, form: RegistrationForm) -> str | None:
    """Return the hash that an earlier registration left, if it is of the same password; a comparison whoever it is."""
    found = store.database.fetch_primary(statement("find_registered_password"), (form.email,))
    before: str | None = found[0][0] if found else None
    return before if passwords.matches(before, form.password) else None


def verify(store: Store, link: MailLink, *, token: str, client: ClientInfo) -> None:
    """Open the account of a registration by its link, once; raises `Refused` INVALID_TOKEN."""
    user, fingerprint = link.read(token)

    def work(transaction: Transaction) -> None:
        found = transaction.execute(statement("lock_account"), (user,))
        _, email, status, password, unverified = found[0] if found else (None,) * 5
        if found and (not unverified or fingerprint != fingerprint_of(email, password)):
            raise used_link()
        if status != "draft":
            raise invalid_token()
        users = _recorder(store, transaction, user, client)
        before = users.before([user])
        transaction.execute(statement("verify_user"), (user,))
        users.changed(before)

    in_transaction(store, work)


def _recorder(
    store: Store, transaction: Transaction, user: str | None, client: ClientInfo
) -> Recorder:
    """Return what writes down a registration as the user's own doing."""
    catalogue = store.snapshots.current().catalogue
    return recorder(transaction, catalogue, "system_users", user=user, client=client)


def _is_address_allowed(said: str | None, email: str) -> bool:
    """Tell whether the filter of the settings lets an address in; one that cannot be read lets nobody in."""
    try:
        rule = None if said is None else jsontext.loads_stored(said)
        return rule is None or not failures(
            parse_rule(rule), {"email": email.lower()}, RuleContext()
        )
    except (Refused, ValueError):
        return False
