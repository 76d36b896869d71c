"""Login, refresh and logout (specification, sections 4.3 and 5; decisions, section 10)."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TypeVar

from cms import passwords
from cms.auth import tokens
from cms.config import Config, secret_of
from cms.errors import Problem, Refused
from cms.store.border import Deadlock
from cms.store.database import Row, Transaction
from cms.store.statements import statement
from cms.store.store import Caller, Store

ATTEMPTS = 3

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Issuer:
    """What tokens are signed with, and how long they live."""

    secret: str
    access_life: timedelta
    refresh_life: timedelta

    @classmethod
    def of(cls, config: Config) -> Issuer:
        """Return the issuer of the settings; makes the secret when there is none."""
        passwords.make_ready()
        return cls(secret_of(config), config.access_token_ttl, config.refresh_token_ttl)


@dataclass(frozen=True, slots=True)
class Tokens:
    """What a login gives; `expires` is the access token's life in milliseconds."""

    access_token: str
    expires: int
    refresh_token: str


@dataclass(frozen=True, slots=True)
class _User:
    id: str
    role: str | None
    status: str
    admin_access: bool
    app_access: bool
    password: str | None = None


def login(store: Store, issuer: Issuer, *, email: str, password: str, caller: Caller) -> Tokens:
    """Open a session; raises `Refused` INVALID_CREDENTIALS, or USER_SUSPENDED once the password was right.

    An unknown address takes the same time as a wrong password.
    """
    rows = store.database.fetch_primary(statement("find_user_by_email"), (email,))
    user = _User(*rows[0]) if rows else None
    if not passwords.matches(user.password if user else None, password) or user is None:
        raise invalid_credentials()
    if user.status == "suspended":
        raise Refused(Problem("USER_SUSPENDED", "The user is suspended."))
    if user.status != "active":
        raise invalid_credentials()
    return _in_transaction(store, lambda transaction: _opened(transaction, issuer, user, caller))


def refresh(store: Store, issuer: Issuer, *, refresh_token: str) -> Tokens:
    """Exchange a refresh token for a new pair; the one before the current one ends its session.

    Any other secret does nothing: the session's id is not secret, it can be read in every access token.
    """
    session, secret = _split(refresh_token)

    def work(transaction: Transaction) -> Tokens | None:
        found = transaction.execute(statement("lock_session"), (session,))
        if found and found[0][1] == tokens.digest(secret):
            transaction.execute(statement("end_stolen_session"), (session,))
            return None
        user = _owner(found[0], secret) if found else None
        return _renewed(transaction, issuer, user, session=session) if user else None

    renewed = _in_transaction(store, work)
    if renewed is None:
        raise invalid_credentials()  # outside the transaction, which would take back the end of the session
    return renewed


def logout(store: Store, *, refresh_token: str) -> None:
    """End the session of a refresh token; raises `Refused` INVALID_CREDENTIALS when it is none."""
    session, secret = _split(refresh_token)

    def work(transaction: Transaction) -> None:
        found = transaction.execute(statement("lock_session"), (session,))
        if not found or found[0][0] != tokens.digest(secret):
            raise invalid_credentials()
        transaction.execute(statement("end_session"), (session,))

    _in_transaction(store, work)


def invalid_credentials() -> Refused:
    return Refused(Problem("INVALID_CREDENTIALS", "The credentials are not right."))


def _in_transaction(store: Store, work: Callable[[Transaction], T]) -> T:
    """Do the work in a transaction, again when two of them waited for each other and this one was given up."""
    for _ in range(ATTEMPTS - 1):
        try:
            with store.database.transaction() as transaction:
                return work(transaction)
        except Deadlock:
            continue
    with store.database.transaction() as transaction:
        return work(transaction)


def _split(refresh_token: str) -> tuple[str, str]:
    """A refresh token is the session's id and a secret, so that an old one is known for what it is."""
    session, _, secret = refresh_token.partition(".")
    try:
        return str(uuid.UUID(session)), secret
    except ValueError:
        raise invalid_credentials() from None


def _owner(row: Row, secret: str) -> _User | None:
    stored, _, expires, *user = row
    fits = stored == tokens.digest(secret) and expires > datetime.now(UTC)
    owner = _User(*user)
    return owner if fits and owner.status == "active" else None


def _opened(transaction: Transaction, issuer: Issuer, user: _User, caller: Caller) -> Tokens:
    session, secret = str(uuid.uuid4()), tokens.random_token()
    expires = datetime.now(UTC) + issuer.refresh_life
    # First the user, then sessions: the order in which a change of the password takes their locks.
    if not transaction.execute(statement("note_access"), (user.id, user.password)):
        raise invalid_credentials()
    transaction.execute(statement("end_expired_sessions_of"), (user.id,))
    transaction.execute(
        statement("open_session"),
        (session, user.id, tokens.digest(secret), expires, caller.ip, caller.user_agent, caller.origin),
    )
    return _pair(issuer, user, session=session, secret=secret)


def _renewed(transaction: Transaction, issuer: Issuer, user: _User, *, session: str) -> Tokens:
    secret, expires = tokens.random_token(), datetime.now(UTC) + issuer.refresh_life
    transaction.execute(statement("renew_session"), (session, tokens.digest(secret), expires))
    return _pair(issuer, user, session=session, secret=secret)


def _pair(issuer: Issuer, user: _User, *, session: str, secret: str) -> Tokens:
    claims = {
        "id": user.id,
        "role": user.role,
        "app_access": user.app_access,
        "admin_access": user.admin_access,
        "session": session,
    }
    token = tokens.access_token(claims, secret=issuer.secret, life=issuer.access_life)
    return Tokens(token, int(issuer.access_life.total_seconds() * 1000), f"{session}.{secret}")
