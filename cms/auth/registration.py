"""Public registration, when the settings open it (decisions, sections 9 and 15)."""

from __future__ import annotations

import uuid
from dataclasses import dataclass, field

from cms import jsontext, passwords
from cms.auth import letters
from cms.auth.accounts import check_email
from cms.auth.letters import REGISTRATION, Letter, mark_of
from cms.auth.links import Link
from cms.auth.sessions import in_transaction, once_for
from cms.auth.tokens import invalid_token, used_link
from cms.errors import Refused, forbidden
from cms.query.validation import Given, failures, parse_rule
from cms.store.database import Transaction
from cms.store.once import Once
from cms.store.recording import Recorder, recorder
from cms.store.statements import statement
from cms.store.store import Caller, Store


@dataclass(frozen=True, slots=True)
class Form:
    """What somebody registers with."""

    email: str
    password: str = field(repr=False)
    first_name: str | None = None
    last_name: str | None = None
    verification_url: str | None = None


@dataclass(frozen=True, slots=True)
class Terms:
    """What the settings say of registration."""

    open: bool
    role: str | None
    verify: bool
    emails: str | None
    policy: str | None


def register(store: Store, link: Link, form: Form, *, caller: Caller, once: Once | None = None) -> None:
    """Make a user, and send the link that opens the account where the settings ask for it.

    For an address that has an account the same is done and nothing comes of it. Of two registrations of one address
    either may be somebody else's, who waits for the owner to follow the link: with different passwords neither counts.
    Raises `Refused` FORBIDDEN when registration is closed or not for that address, and what `check_password` does.
    """
    terms = Terms(*store.database.fetch_primary(statement("find_registration"))[0])
    if not terms.open:
        raise forbidden()
    address = link.address(form.verification_url)
    check_email(form.email)
    if not _admits(terms.emails, form.email):
        raise forbidden()
    passwords.check_password(form.password, policy=terms.policy)
    before, new = _password_before(store, form), passwords.hashed(form.password)
    row = (form.email, new, form.first_name, form.last_name, terms.role, terms.verify)

    def work(transaction: Transaction) -> None:
        again = [user for (user,) in transaction.execute(statement("find_registered"), (form.email,))]
        was = _recorder(store, transaction, None, caller).before(again)
        made = transaction.execute(statement("register_user"), (*row, before))
        user, to, password = made[0] if made else (str(uuid.uuid4()), None, new)
        users = _recorder(store, transaction, user, caller)
        users.created([user for user, *_ in made if user not in was])
        users.changed(was)
        if terms.verify:
            target = link.to(address, user=user, mark=mark_of(form.email, password))
            letters.send(transaction, Letter(to, REGISTRATION, {"url": target, "email": form.email}))

    in_transaction(store, once_for(caller, once, work))


def _password_before(store: Store, form: Form) -> str | None:
    """Return the hash that an earlier registration left, if it is of the same password; a comparison whoever it is."""
    found = store.database.fetch_primary(statement("find_registered_password"), (form.email,))
    before: str | None = found[0][0] if found else None
    return before if passwords.matches(before, form.password) else None


def verify(store: Store, link: Link, *, token: str, caller: Caller) -> None:
    """Open the account of a registration by its link, once; raises `Refused` INVALID_TOKEN."""
    user, mark = link.reader(token)

    def work(transaction: Transaction) -> None:
        found = transaction.execute(statement("lock_account"), (user,))
        _, email, status, password, unverified = found[0] if found else (None,) * 5
        if found and (not unverified or mark != mark_of(email, password)):
            raise used_link()
        if status != "draft":
            raise invalid_token()
        users = _recorder(store, transaction, user, caller)
        before = users.before([user])
        transaction.execute(statement("verify_user"), (user,))
        users.changed(before)

    in_transaction(store, work)


def _recorder(store: Store, transaction: Transaction, user: str | None, caller: Caller) -> Recorder:
    """Return what writes down a registration as the user's own doing."""
    catalogue = store.snapshots.current().catalogue
    return recorder(transaction, catalogue, "system_users", user=user, caller=caller)


def _admits(said: str | None, email: str) -> bool:
    """Tell whether the filter of the settings lets an address in; one that cannot be read lets nobody in."""
    try:
        rule = None if said is None else jsontext.stored(said)
        return rule is None or not failures(parse_rule(rule), {"email": email.lower()}, Given())
    except (Refused, ValueError):
        return False
