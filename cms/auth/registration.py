"""Public registration, when the settings open it (docs/authentication.md)."""

from __future__ import annotations

import uuid
from dataclasses import dataclass, field

from cms import jsontext, passwords
from cms.auth import account_mail
from cms.auth.account_mail import REGISTRATION, AccountMail, fingerprint_of
from cms.auth.accounts import check_email
from cms.auth.mail_links import MailLink
from cms.auth.sessions import in_transaction, made_idempotent
from cms.auth.tokens import used_link
from cms.database.connections import Transaction
from cms.database.statements import statement
from cms.errors import Refused, forbidden, invalid_token
from cms.items.history.recording import Recorder, recorder
from cms.query.rules.payload_rules import parse_rule
from cms.query.rules.resolved_rules import resolve_rule
from cms.query.rules.validation import RuleContext, failures
from cms.schema.system import USERS
from cms.store.idempotency import Idempotency
from cms.store.identity import ClientInfo
from cms.store.store import Store


@dataclass(frozen=True, slots=True)
class RegistrationForm:
    """The values that somebody registers with."""

    email: str
    password: str = field(repr=False)
    first_name: str | None = None
    last_name: str | None = None
    verification_url: str | None = None


@dataclass(frozen=True, slots=True)
class RegistrationSettings:
    """The settings of registration; `emails` is a filter as JSON text, `policy` a regular
    expression.
    """

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
    """Make a user, and send the link that verifies the address where the settings ask for it.

    For an address that has an account the same work is done, and nothing comes of it. Of two
    registrations of one address either may be a stranger's, who waits for the owner to follow the
    link: with different passwords neither password counts.
    Raises `Refused` FORBIDDEN when registration is closed, or closed to that address, and whatever
    `check_password` raises.
    """
    settings = _registration_settings(store)
    address = link.address(form.verification_url)
    _check_form(form, settings)
    earlier_hash = _earlier_hash(store, form)
    # Before the transaction: hashing is slow on purpose, and locks must not wait for it.
    new_hash = passwords.hashed(form.password)
    values = (form.email, new_hash, form.first_name, form.last_name, settings.role, settings.verify)

    def work(transaction: Transaction) -> None:
        # A registration that nobody has verified begins again: its row changes.
        registered = transaction.execute(statement("find_registered"), (form.email,))
        before = _recorder(store, transaction, None, client).before(
            [user for (user,) in registered]
        )
        rows = transaction.execute(statement("register_user"), (*values, earlier_hash))
        if rows:
            user, to, password = rows[0]
        else:  # the address belongs to an account
            user = str(uuid.uuid4())
            to = None
            password = new_hash
        users = _recorder(store, transaction, user, client)
        users.created([row[0] for row in rows if row[0] not in before])
        users.changed(before)
        if settings.verify:
            url = link.to(address, user=user, fingerprint=fingerprint_of(form.email, password))
            data = {"url": url, "email": form.email}
            account_mail.send(transaction, AccountMail(to, REGISTRATION, data))

    in_transaction(store, made_idempotent(client, idempotency, work))


def _registration_settings(store: Store) -> RegistrationSettings:
    """Return the settings of registration; raises `Refused` FORBIDDEN while it is closed."""
    settings = RegistrationSettings(
        *store.database.fetch_primary(statement("find_registration"))[0]
    )
    if not settings.is_open:
        raise forbidden()
    return settings


def _check_form(form: RegistrationForm, settings: RegistrationSettings) -> None:
    """Raise `Refused` for an address or a password that the settings do not allow."""
    check_email(form.email)
    if not _is_address_allowed(settings.emails, form.email):
        raise forbidden()
    passwords.check_password(form.password, policy=settings.policy)


def _earlier_hash(store: Store, form: RegistrationForm) -> str | None:
    """Return the hash of an earlier registration if it is of the same password.

    The comparison is made for every address: its duration must not tell whether there was one.
    """
    rows = store.database.fetch_primary(statement("find_registered_password"), (form.email,))
    earlier_hash: str | None = rows[0][0] if rows else None
    return earlier_hash if passwords.matches(earlier_hash, form.password) else None


def verify(store: Store, link: MailLink, *, token: str, client: ClientInfo) -> None:
    """Activate the account of a registration by its link, once; raises `Refused` INVALID_TOKEN."""
    user, fingerprint = link.read(token)

    def work(transaction: Transaction) -> None:
        rows = transaction.execute(statement("lock_account"), (user,))
        if not rows:
            raise invalid_token()
        _, email, status, password, is_unverified = rows[0]
        if not is_unverified or fingerprint != fingerprint_of(email, password):
            raise used_link()
        # An administrator may have suspended or archived the registration meanwhile.
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
    """Return a recorder that records a registration as the user's own doing."""
    catalogue = store.snapshots.current().catalogue
    return recorder(transaction, catalogue, USERS, user=user, client=client)


def _is_address_allowed(stored_filter: str | None, email: str) -> bool:
    """Tell whether the filter of the settings admits an address.

    A filter that cannot be read admits nobody.
    """
    if stored_filter is None:
        return True
    try:
        rule = jsontext.loads_stored(stored_filter)
        if rule is None:
            return True
        resolved = resolve_rule(parse_rule(rule))
        return not failures(resolved, {"email": email.lower()}, RuleContext())
    except (Refused, ValueError):
        return False
