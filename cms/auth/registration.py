"""Public registration, when the settings open it (docs/authentication.md)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from cms import jsontext
from cms.auth.account_transactions import user_recorder
from cms.auth.accounts import check_email
from cms.auth.mail_links import LinkRecipient, MailLink, lock_linked_account
from cms.auth.tokens import used_link
from cms.auth.user_filters import FilteredUser, user_writes
from cms.database.connections import Transaction, single_values
from cms.database.statements import statement
from cms.errors import Refused, forbidden, invalid_token
from cms.hashing import passwords
from cms.mappings import without_none
from cms.query.rules.payload_rules import parse_rule
from cms.query.rules.resolved_rules import resolve_rule
from cms.query.rules.validation import RuleContext, failures
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
    """The settings of registration.

    `emails` is a filter as JSON text, `policy` a regular expression for passwords.
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
    """Make a user; where the settings ask for it, send a link that verifies the address.

    An address that has an account already takes the same time, and nothing is changed or sent.

    An address can be registered again until its link is followed. If the second password differs
    from the first, none is kept: one of the two may be a stranger's, who waits for the owner of the
    address to follow the link. The owner then asks for a new password by mail.

    Raises `Refused` FORBIDDEN when registration is closed, or closed to that address, and whatever
    `check_password` raises.
    """
    settings = _registration_settings(store)
    address = link.address(form.verification_url)
    _check_form(form, settings)
    earlier_hash = _earlier_hash(store, form)
    # Before the transaction: hashing is slow on purpose, and locks must not wait for it.
    new_hash = store.passwords.hashed(form.password)
    registration = _Registration(form, settings, new_hash, earlier_hash)
    for attempt in user_writes(store, verb="create", client=client, idempotency=idempotency):
        with attempt as transaction:
            # Whether the address has an account is looked up afterwards, so that flows cannot
            # reveal it.
            filtered = attempt.filters.new(registration.payload)
            recipient = _write(store, transaction, registration, filtered, client)
            if settings.verify:
                link.send(transaction, address, recipient)


@dataclass(frozen=True, slots=True)
class _Registration:
    """A checked form with its hashed password.

    `earlier_hash` is the stored hash of an earlier registration with the same password, if any.
    """

    form: RegistrationForm
    settings: RegistrationSettings
    new_hash: str = field(repr=False)
    earlier_hash: str | None = field(repr=False)

    @property
    def payload(self) -> Mapping[str, object]:
        """The user as flows see it, without the password."""
        form = self.form
        sent = {"email": form.email, "first_name": form.first_name, "last_name": form.last_name}
        status = "draft" if self.settings.verify else "active"
        return {**without_none(sent), "role": self.settings.role, "status": status}

    def values(self, email: object) -> tuple[object, ...]:
        """Return the parameters of the statement `register_user`."""
        return (
            email,
            self.new_hash,
            self.form.first_name,
            self.form.last_name,
            self.settings.role,
            self.settings.verify,
            self.earlier_hash,
        )


def _write(
    store: Store,
    transaction: Transaction,
    registration: _Registration,
    filtered: FilteredUser,
    client: ClientInfo,
) -> LinkRecipient:
    """Write the user of a registration, and return who gets the link."""
    email = str(filtered.payload["email"])
    # A registration that nobody has verified begins again: its row changes.
    earlier_users = single_values(transaction.execute(statement("find_registered"), (email,)))
    before = user_recorder(store, transaction, client=client).before(earlier_users)
    # One statement looks for an account and writes: two registrations at once cannot both find the
    # address free.
    rows = transaction.execute(statement("register_user"), registration.values(email))
    if rows:
        recipient = LinkRecipient(*rows[0])
    else:  # the address belongs to an account
        recipient = LinkRecipient.nobody(email, password=registration.new_hash)
    filtered.set_profile(transaction, recipient.user)
    # Only now the user is known, who is the author of the registration.
    users = user_recorder(store, transaction, user=recipient.user, client=client)
    users.created([user for user, _, _ in rows if user not in before])
    users.changed(before)
    return recipient


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
    # The filter stays hidden: it may name the domains of customers.
    if not _is_address_allowed(settings.emails, form.email):
        raise forbidden()
    passwords.check_password(form.password, policy=settings.policy)


def _earlier_hash(store: Store, form: RegistrationForm) -> str | None:
    """Return the hash of an earlier registration if it is of the same password.

    The comparison is made for every address: its duration must not tell whether there was one.
    """
    rows = store.database.fetch_primary(statement("find_registered_password"), (form.email,))
    earlier_hash: str | None = rows[0][0] if rows else None
    if store.passwords.matches(earlier_hash, form.password):
        return earlier_hash
    return None


def verify(store: Store, link: MailLink, *, token: str, client: ClientInfo) -> None:
    """Activate the account of a registration by its link, once; raises `Refused` INVALID_TOKEN."""
    linked = link.read(token)
    for attempt in user_writes(store, verb="update", client=client):
        with attempt as transaction:
            account = lock_linked_account(transaction, linked)
            # The first use of the link changes neither address nor password, and so not the
            # fingerprint.
            if not account.is_unverified:
                raise used_link()
            # An administrator may have suspended or archived the registration meanwhile.
            if account.status != "draft":
                raise invalid_token()
            filtered = attempt.filters.changed(account.id, {"status": "active"})
            users = user_recorder(store, transaction, user=account.id, client=client)
            before = users.before([account.id])
            transaction.execute(statement("verify_user"), (account.id,))
            filtered.set_profile(transaction, account.id)
            users.changed(before)
            attempt.filters.queue_runs(account.id, filtered)


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
        # In small letters, as addresses are compared everywhere else.
        return not failures(resolved, {"email": email.lower()}, RuleContext())
    except (Refused, ValueError):
        return False
