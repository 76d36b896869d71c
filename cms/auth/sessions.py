"""Sessions: opened by a login, renewed by their token, ended (docs/authentication.md)."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import NamedTuple, TypeVar

from cms import passwords
from cms.auth import tokens
from cms.auth.claims import record_activity, user_claims
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
    """How a client holds its session.

    Both tokens in JSON, the refresh token in a cookie, or one session cookie that is all it needs.
    """

    JSON = "json"
    COOKIE = "cookie"
    SESSION = "session"


@dataclass(frozen=True, slots=True)
class Issuer:
    """The key that signs tokens, and how long they live."""

    secret: str
    access_life: timedelta
    refresh_life: timedelta
    session_life: timedelta

    @classmethod
    def from_config(cls, config: Config) -> Issuer:
        """Return the issuer of the settings; make the secret when there is none."""
        # The first login of a process must not take longer than the others.
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
    """The tokens of a login or a refresh.

    `token` is the refresh token, or the session cookie, which needs no access token. `expires` is
    the time in milliseconds until the client has to refresh.
    """

    mode: Mode
    token: str
    expires: int
    access_token: str | None = None


class LiveSession(NamedTuple):
    """A session that may go on, by its id, with its mode and its user."""

    id: str
    mode: Mode
    user: str


def open_session(
    transaction: Transaction, issuer: Issuer, user: str, *, mode: Mode, client: ClientInfo
) -> IssuedTokens:
    """Open a session of a user whose row is locked already, and record it; raises `Refused`
    INVALID_IP.

    First the user, then sessions: a change of the password takes its locks in the same order.
    """
    session = str(uuid.uuid4())
    token = tokens.session_token(session, secret=issuer.secret)
    expires = datetime.now(UTC) + issuer.life_of(mode)
    # Here, so that the sessions of a user who logs in often do not pile up until the maintenance.
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
    identity = Identity(user=user, session=session, client=client)
    return _issue_tokens(transaction, issuer, identity, mode=mode, token=token)


def refresh(store: Store, issuer: Issuer, *, token: str, client: ClientInfo) -> IssuedTokens:
    """Renew a session and return its new tokens; raises `Refused` INVALID_CREDENTIALS.

    A refresh token changes with every use. A session whose refresh token comes a second time ends:
    one of the token's two holders has stolen it. A session cookie keeps its token, for the requests
    that are under way hold it too.
    """

    def work(transaction: Transaction) -> IssuedTokens | None:
        session = _find_session(transaction, issuer, token)
        if session is None:
            return None
        new_token = token
        if session.mode is not Mode.SESSION:
            new_token = tokens.session_token(session.id, secret=issuer.secret)
        expires = datetime.now(UTC) + issuer.life_of(session.mode)
        digest = passwords.digest(new_token)
        transaction.execute(statement("renew_session"), (session.id, digest, expires))
        identity = Identity(user=session.user, session=session.id, client=client)
        return _issue_tokens(transaction, issuer, identity, mode=session.mode, token=new_token)

    issued = in_transaction(store, work)
    if issued is None:
        # Raised outside the transaction, whose rollback would undo the end of a stolen session.
        raise invalid_credentials()
    return issued


def logout(store: Store, *, token: str, client: ClientInfo, everywhere: bool = False) -> None:
    """End the session of a token, or with `everywhere` all sessions of its user.

    The access token of the one session lives on until it expires; with `everywhere` all access
    tokens end at once. Raises `Refused` INVALID_CREDENTIALS for a token of no session.
    """
    session = tokens.session_of(token)

    def work(transaction: Transaction) -> None:
        rows = transaction.execute(statement("lock_session"), (session,))
        if not rows:
            raise invalid_credentials()
        digest, _, is_alive, user = rows[0]
        if digest != passwords.digest(token) or not is_alive:
            raise invalid_credentials()
        if everywhere:
            end_sessions(transaction, user)
        else:
            transaction.execute(statement("end_session"), (session,))
        record_activity(transaction, "logout", user=user, client=client)

    in_transaction(store, work)


def end_sessions(transaction: Transaction, *users: str, keep: str | None = None) -> None:
    """End all sessions of users except the one to `keep`, with their refresh and access tokens."""
    transaction.execute(statement("end_sessions_of"), (list(users), keep))


def invalid_credentials() -> Refused:
    return Refused(Problem("INVALID_CREDENTIALS", "The credentials are not right."))


def in_transaction(store: Store, work: Callable[[Transaction], T]) -> T:
    """Do the work in a transaction, and again when a deadlock ended it."""
    # The last attempt is outside the loop: its deadlock is raised.
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
    """Return work of an anonymous client that is done only once for an Idempotency-Key."""
    # Nobody is logged in, so the key belongs to the client's address.
    name = ANONYMOUS.with_client(client).name

    def idempotent_work(transaction: Transaction) -> None:
        lock_key(transaction, name, idempotency)
        run_idempotently(transaction, name, idempotency, lambda: work(transaction))

    return idempotent_work


def _find_session(transaction: Transaction, issuer: Issuer, token: str) -> LiveSession | None:
    """Return the session of a token; None when there is none, or it must not go on."""
    session = tokens.session_of(token)
    if not session:
        return None
    rows = transaction.execute(statement("lock_session"), (session,))
    if not rows:
        return None
    digest, mode, is_alive, user = rows[0]
    if digest == passwords.digest(token):
        return LiveSession(session, Mode(mode), user) if is_alive else None
    # Only an older token of this service ends the session: a made-up one must not log users out.
    if tokens.is_signed_here(token, secret=issuer.secret):
        transaction.execute(statement("end_stolen_session"), (session,))
    return None


def _issue_tokens(
    transaction: Transaction, issuer: Issuer, identity: Identity, *, mode: Mode, token: str
) -> IssuedTokens:
    """Return the tokens of a session once it is known that the user may act from the client's
    address.
    """
    user = user_claims(transaction, identity)
    # The cookie is looked up with each request: there is no need for claims that are signed.
    if mode is Mode.SESSION:
        return IssuedTokens(mode, token, _milliseconds(issuer.session_life))
    claims = {
        "id": identity.user,
        "role": user.role,
        "app_access": user.app_access,
        "admin_access": user.admin_access,
        "session": identity.session,
    }
    access = tokens.access_token(claims, secret=issuer.secret, life=issuer.access_life)
    return IssuedTokens(mode, token, _milliseconds(issuer.access_life), access)


def _milliseconds(life: timedelta) -> int:
    return int(life.total_seconds() * 1000)
