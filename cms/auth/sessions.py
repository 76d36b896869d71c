"""Sessions: opened by a login, renewed by their token, ended (specification, section 5; decisions, section 10)."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import TypeVar

from cms import passwords
from cms.auth import tokens
from cms.auth.claims import person, record_activity
from cms.config import Config, secret_of
from cms.database.connections import Transaction
from cms.database.error_mapping import Deadlock
from cms.database.statements import statement
from cms.errors import Problem, Refused
from cms.store.idempotency import Idempotency, lock_key, run_idempotently
from cms.store.identity import ANONYMOUS, ClientInfo, Identity
from cms.store.store import Store

ATTEMPTS = 3

T = TypeVar("T")


class Mode(StrEnum):
    """What a client holds of its session: both tokens, the refresh token in a cookie, or one cookie for everything."""

    JSON = "json"
    COOKIE = "cookie"
    SESSION = "session"


@dataclass(frozen=True, slots=True)
class Issuer:
    """What tokens are signed with, and how long they live."""

    secret: str
    access_life: timedelta
    refresh_life: timedelta
    session_life: timedelta

    @classmethod
    def from_config(cls, config: Config) -> Issuer:
        """Return the issuer of the settings; makes the secret when there is none."""
        passwords.warm_up()
        return cls(
            secret_of(config),
            config.access_token_ttl,
            config.refresh_token_ttl,
            config.session_cookie_ttl,
        )

    def life_of(self, mode: Mode) -> timedelta:
        """Return how long a session lives when nobody renews it."""
        return self.session_life if mode is Mode.SESSION else self.refresh_life


@dataclass(frozen=True, slots=True)
class IssuedTokens:
    """What a login or a refresh gives: `token` is the refresh token, or the session cookie, which needs no other.

    `expires` is how many milliseconds the client can go on before it has to refresh.
    """

    mode: Mode
    token: str
    expires: int
    access_token: str | None = None


def open_session(
    transaction: Transaction, issuer: Issuer, user: str, *, mode: Mode, client: ClientInfo
) -> IssuedTokens:
    """Open a session of a user whose row is locked already, and write it down.

    First the user, then sessions: the order in which a change of the password takes their locks.
    Raises `Refused` INVALID_IP.
    """
    session = str(uuid.uuid4())
    token, expires = (
        tokens.session_token(session, secret=issuer.secret),
        datetime.now(UTC) + issuer.life_of(mode),
    )
    transaction.execute(statement("end_expired_sessions_of"), (user, issuer.access_life))
    transaction.execute(
        statement("open_session"),
        (
            session,
            user,
            passwords.digest(token),
            mode,
            expires,
            client.ip,
            client.user_agent,
            client.origin,
        ),
    )
    record_activity(transaction, "login", user=user, client=client)
    return _issue_tokens(
        transaction,
        issuer,
        Identity(user=user, session=session, client=client),
        mode=mode,
        token=token,
    )


def refresh(store: Store, issuer: Issuer, *, token: str, client: ClientInfo) -> IssuedTokens:
    """Go on with a session; one whose refresh token was used before ends, for one of its two holders has stolen it.

    The token changes with every use, the one of a session cookie does not: requests that are under way hold it too.
    Raises `Refused` INVALID_CREDENTIALS.
    """

    def work(transaction: Transaction) -> IssuedTokens | None:
        session, mode, user = _find_session(transaction, issuer, token)
        if user is None:
            return None
        new = token if mode is Mode.SESSION else tokens.session_token(session, secret=issuer.secret)
        expires = datetime.now(UTC) + issuer.life_of(mode)
        transaction.execute(statement("renew_session"), (session, passwords.digest(new), expires))
        return _issue_tokens(
            transaction,
            issuer,
            Identity(user=user, session=session, client=client),
            mode=mode,
            token=new,
        )

    renewed = in_transaction(store, work)
    if renewed is None:
        raise invalid_credentials()  # outside the transaction, which would take back the end of the session
    return renewed


def logout(store: Store, *, token: str, client: ClientInfo, everywhere: bool = False) -> None:
    """End the session of a token, or all of its user's; raises `Refused` INVALID_CREDENTIALS when it is of none.

    The access token of the one session lives to its end; with `everywhere` those of all end at once.
    """
    session = tokens.session_of(token)

    def work(transaction: Transaction) -> None:
        found = transaction.execute(statement("lock_session"), (session,))
        if not found or found[0][0] != passwords.digest(token) or not found[0][2]:
            raise invalid_credentials()
        user = found[0][3]
        if everywhere:
            end_sessions(transaction, user)
        else:
            transaction.execute(statement("end_session"), (session,))
        record_activity(transaction, "logout", user=user, client=client)

    in_transaction(store, work)


def end_sessions(transaction: Transaction, *users: str, keep: str | None = None) -> None:
    """End all sessions of users, refresh and access tokens alike, but the one to keep."""
    transaction.execute(statement("end_sessions_of"), (list(users), keep))


def invalid_credentials() -> Refused:
    return Refused(Problem("INVALID_CREDENTIALS", "The credentials are not right."))


def in_transaction(store: Store, work: Callable[[Transaction], T]) -> T:
    """Do the work in a transaction, again when two of them waited for each other and this one was given up."""
    for _ in range(ATTEMPTS - 1):
        try:
            with store.database.transaction() as transaction:
                return work(transaction)
        except Deadlock:
            continue
    with store.database.transaction() as transaction:
        return work(transaction)


def made_idempotent(
    client: ClientInfo, idempotency: Idempotency | None, work: Callable[[Transaction], None]
) -> Callable[[Transaction], None]:
    """Return the work of somebody who needs no credentials for it, done once with an Idempotency-Key."""
    name = ANONYMOUS.with_client(client).name

    def done(transaction: Transaction) -> None:
        lock_key(transaction, name, idempotency)
        run_idempotently(transaction, name, idempotency, lambda: work(transaction))

    return done


def _find_session(
    transaction: Transaction, issuer: Issuer, token: str
) -> tuple[str, Mode, str | None]:
    """Return the session of a token, its mode and its user; no user when it is not to go on."""
    session = tokens.session_of(token)
    found = transaction.execute(statement("lock_session"), (session,)) if session else []
    if not session or not found:
        return "", Mode.JSON, None
    current, mode, lives, user = found[0]
    if current == passwords.digest(token):
        return session, Mode(mode), user if lives else None
    if tokens.is_signed_here(token, secret=issuer.secret):
        transaction.execute(statement("end_stolen_session"), (session,))
    return session, Mode(mode), None


def _issue_tokens(
    transaction: Transaction, issuer: Issuer, identity: Identity, *, mode: Mode, token: str
) -> IssuedTokens:
    """Return what the client gets, once it is known that this user may act from there."""
    found = person(transaction, identity)
    if mode is Mode.SESSION:
        return IssuedTokens(mode, token, _milliseconds(issuer.session_life))
    claims = {
        "id": identity.user,
        "role": found.role,
        "app_access": found.app_access,
        "admin_access": found.admin_access,
        "session": identity.session,
    }
    access = tokens.access_token(claims, secret=issuer.secret, life=issuer.access_life)
    return IssuedTokens(mode, token, _milliseconds(issuer.access_life), access)


def _milliseconds(life: timedelta) -> int:
    return int(life.total_seconds() * 1000)
