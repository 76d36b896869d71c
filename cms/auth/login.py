"""Login, and the defence against guessed passwords (docs/authentication.md)."""

from __future__ import annotations

import logging
import uuid
from dataclasses import dataclass, field

from cms.auth import factors
from cms.auth.account_transactions import account_attempts, user_recorder
from cms.auth.sessions import (
    IssuedTokens,
    Issuer,
    Mode,
    invalid_credentials,
    open_session,
)
from cms.database.connections import Fetch, Transaction
from cms.database.statements import statement
from cms.errors import Problem, Refused
from cms.store.identity import ClientInfo
from cms.store.store import Store

log = logging.getLogger("cms.auth")

SUSPENDED = "suspended"


@dataclass(frozen=True, slots=True)
class Credentials:
    """The values of a login; `otp` is a code of the second factor, or a recovery code."""

    email: str
    password: str = field(repr=False)
    otp: str | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True)
class Account:
    """A user as a login reads it; an administrator `is_throttled` after failed logins."""

    id: str
    status: str
    password: str | None = field(repr=False)
    tfa_secret: str | None = field(repr=False)
    is_throttled: bool

    @property
    def comparable(self) -> str | None:
        """The hash that passwords are compared with; None if no password is accepted.

        For a draft, invited or archived user, and for an administrator who has to wait, a right
        password gets the answer of a wrong one and takes the same time.
        """
        if self.is_throttled or self.status not in ("active", SUSPENDED):
            return None
        return self.password


def login(
    store: Store, issuer: Issuer, credentials: Credentials, *, mode: Mode, client: ClientInfo
) -> IssuedTokens:
    """Open a session.

    An unknown address takes the same time as a wrong password. Raises `Refused` INVALID_CREDENTIALS
    and, only once the password was right, USER_SUSPENDED, INVALID_OTP or INVALID_IP.
    """
    account = _confirmed_account(store, credentials, client)
    check_factor(store, account.id, account.tfa_secret, credentials.otp, client=client)
    issued = _open(store, issuer, account, credentials.password, mode=mode, client=client)
    if issued is None and store.passwords.is_outdated(account.password or ""):
        # Another login has hashed the password again. The code of the second factor is used up.
        account = _confirmed_account(store, credentials, client)
        issued = _open(store, issuer, account, credentials.password, mode=mode, client=client)
    if issued is None:
        raise invalid_credentials()
    return issued


def _confirmed_account(store: Store, credentials: Credentials, client: ClientInfo) -> Account:
    """Return the active account whose password this is; raises `Refused`."""
    # The primary: a replica could still have the old password.
    rows = store.database.fetch_primary(statement("find_account"), (credentials.email,))
    account = Account(*rows[0]) if rows else None
    confirm_password(store, account, credentials.password, client=client)
    assert account  # without one, no password is right
    # The status is revealed only now: without the password nobody learns that the account exists.
    if account.status == SUSPENDED:
        raise suspended()
    return account


def suspended() -> Refused:
    """Return the error of a user who is suspended, for those who have proved who they are."""
    return Refused(Problem("USER_SUSPENDED", "The user is suspended."))


def _open(
    store: Store, issuer: Issuer, account: Account, password: str, *, mode: Mode, client: ClientInfo
) -> IssuedTokens | None:
    """Open a session; None where the stored hash is another one meanwhile, or the status."""
    # Before the transaction: hashing is slow on purpose, and locks must not wait for it.
    # A hash of older parameters is replaced when its password is known for a moment, which is only
    # at a login.
    rehashed = store.passwords.rehashed(account.password or "", password)
    for attempt in account_attempts(store):
        with attempt as transaction:
            issued = None
            # The statement compares the hash: the password may have changed since it was read.
            values = (account.id, account.password, rehashed)
            if transaction.execute(statement("record_login"), values):
                issued = open_session(transaction, issuer, account.id, mode=mode, client=client)
    return issued


def account_of(fetch: Fetch, user: str) -> Account:
    """Return the account of a user who is logged in."""
    rows = fetch(statement("find_account_of"), (user,))
    # The user may have been deleted since the token was made.
    if not rows:
        raise invalid_credentials()
    return Account(*rows[0])


def confirm_password(
    store: Store, account: Account | None, password: str, *, client: ClientInfo
) -> None:
    """Compare the password and count a failure; raises `Refused` INVALID_CREDENTIALS.

    Unknown addresses cost the same comparison and the same statement as accounts. While an
    administrator is slowed down, no password is right and no failure counts.
    """
    comparable = account.comparable if account else None
    if not store.passwords.matches(comparable, password, reveals_match=True):
        user = account.id if account and not account.is_throttled else None
        # A random id is no user's: the statement takes its time and counts nothing.
        count_failure(store, user or str(uuid.uuid4()), client)
        raise invalid_credentials()


def check_factor(
    store: Store, user: str, secret: str | None, otp: str | None, *, client: ClientInfo
) -> None:
    """Use up a code of the second factor, if the user has one; raises `Refused` INVALID_OTP.

    A wrong code counts as a failed login. A missing one does not: that is how a client learns that
    a code is needed.
    """
    if secret is None:
        return
    if otp is None:
        raise factors.invalid_otp()
    if not factors.use_code(store.database.fetch_primary, user, secret=secret, code=otp):
        # A second factor can be guessed like a password, so wrong codes count like wrong passwords.
        count_failure(store, user, client)
        raise factors.invalid_otp()


def count_failure(store: Store, user: str, client: ClientInfo) -> None:
    """Count a failed login, and suspend the user when there were too many.

    An id that is no user's counts nothing. The activity records the suspension without a user, with
    the client that it came from.
    """
    # A statement of its own, so that most failures take no lock beyond the user's row.
    rows = store.database.fetch_primary(statement("count_failed_login"), (user,))
    if not rows or not rows[0][0]:
        return
    for attempt in account_attempts(store):
        with attempt as transaction:
            status = _suspend_or_delay(store, user, client, transaction)
    if status is None:
        return
    outcome = "suspended"
    if status != SUSPENDED:
        outcome = "slowed down, as the last active administrator"
    log.warning("User %s has failed to log in too often and is %s.", user, outcome)


def _suspend_or_delay(
    store: Store, user: str, client: ClientInfo, transaction: Transaction
) -> str | None:
    """Suspend a user, or slow down the last administrator, and return the status of the user.

    Returns None for a user who is not active any more.
    """
    # The last two administrators must not be suspended at once.
    transaction.execute(statement("lock_accounts"))
    users = user_recorder(store, transaction, client=client)
    before = users.before([user])
    rows = transaction.execute(statement("suspend_or_delay"), (user,))
    if not rows:
        return None
    status = str(rows[0][0])
    if status == SUSPENDED:
        users.changed(before)
    return status
