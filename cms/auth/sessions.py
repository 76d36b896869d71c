"""Sessions: opened by a login, renewed by their token, ended (docs/authentication.md)."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import NamedTuple

from cms import jsontext
from cms.access.ip_addresses import networks_of, require_address
from cms.auth import tokens
from cms.auth.account_transactions import account_attempts, record_activity
from cms.config import Config
from cms.config.secret_file import secret_of
from cms.database.connections import Transaction
from cms.database.statements import statement
from cms.errors import Problem, Refused, invalid_token
from cms.hashing import passwords
from cms.store.identity import ClientInfo, Identity
from cms.store.share_actors import find_share
from cms.store.store import Store

PROVIDER_TOKEN = "refresh token of a provider"
"""For what the key seals that is stored in `system_sessions.provider_token`."""


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


class LoginSource(NamedTuple):
    """The provider of an external login.

    Where its own session is ended, and the refresh token that it gave, if it did.
    """

    provider: str
    logout_url: str | None = None
    refresh_token: str | None = None

    def sealed_token(self, secret: str) -> str | None:
        """Return the refresh token as it is stored."""
        if self.refresh_token is None:
            return None
        return tokens.seal(PROVIDER_TOKEN, self.refresh_token, secret=secret)


class LiveSession(NamedTuple):
    """A session that may go on, by its id, with its mode and its user: None for that of a share.

    `is_renewed` where its token has just been used: the next one exists already.
    """

    id: str
    mode: Mode
    user: str | None
    is_renewed: bool
    logout_url: str | None


def open_session(
    transaction: Transaction,
    issuer: Issuer,
    user: str,
    *,
    mode: Mode,
    client: ClientInfo,
    source: LoginSource | None = None,
) -> IssuedTokens:
    """Open a session of a user, and record the login; raises `Refused` INVALID_IP.

    `source` is the provider that has confirmed the user, if it was not this service.

    The caller has locked the row of the user before this locks sessions. A change of the password
    takes its locks in the same order, so that the two do not wait for each other.
    """
    session = str(uuid.uuid4())
    # Random text beside the id: somebody who reads an id, for instance in an access token, cannot
    # make the token of its session.
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
            source.logout_url if source else None,
            source.sealed_token(issuer.secret) if source else None,
        ),
    )
    provider = source.provider if source else None
    record_activity(transaction, "login", user=user, client=client, comment=provider)
    identity = Identity(user=user, session=session, client=client)
    return _issue_tokens(transaction, issuer, identity, mode=mode, token=token)


def refresh(store: Store, issuer: Issuer, *, token: str, client: ClientInfo) -> IssuedTokens:
    """Renew a session and return its new tokens; raises `Refused` INVALID_CREDENTIALS.

    A refresh token changes with every use. For 10 seconds a used one answers the same next token
    again, because tabs of a browser refresh at once. A session whose refresh token comes later than
    that ends: one of the token's two holders has stolen it. A session cookie keeps its token, for
    the requests that are under way hold it too.
    """
    for attempt in account_attempts(store):
        with attempt as transaction:
            issued = _renew_session(transaction, issuer, token, client)
    if issued is None:
        # Raised outside the transaction, whose rollback would undo the end of a stolen session.
        raise invalid_credentials()
    return issued


def _renew_session(
    transaction: Transaction, issuer: Issuer, token: str, client: ClientInfo
) -> IssuedTokens | None:
    """Return the new tokens of a session; None where it must not go on."""
    session = _live_session(transaction, token)
    if session is None:
        _end_stolen_session(transaction, issuer, token)
        return None
    new_token = token
    if session.mode is not Mode.SESSION:
        # A refresh token is good for one use, a cookie as long as its session.
        new_token = tokens.next_session_token(token, secret=issuer.secret)
    if not session.is_renewed:
        expires = datetime.now(UTC) + issuer.life_of(session.mode)
        digest = passwords.digest(new_token)
        transaction.execute(statement("renew_session"), (session.id, digest, expires))
    identity = Identity(user=session.user, session=session.id, client=client)
    # A session belongs to a user or to a share (system_sessions_holder_check).
    issue = _issue_tokens if session.user else _issue_share_tokens
    return issue(transaction, issuer, identity, mode=session.mode, token=new_token)


def logout(store: Store, *, token: str, client: ClientInfo, everywhere: bool = False) -> str | None:
    """End the session of a token, or with `everywhere` all sessions of its user.

    Returns the address at which the browser ends the session of an external login, if there is one.

    The access token of the one session lives on until it expires; with `everywhere` all access
    tokens end at once. Raises `Refused` INVALID_CREDENTIALS for a token of no session.
    """
    for attempt in account_attempts(store):
        with attempt as transaction:
            session = _live_session(transaction, token)
            if session is None:
                raise invalid_credentials()
            # A share has no user, and so no other sessions to end.
            if everywhere and session.user:
                end_sessions(transaction, session.user)
            else:
                transaction.execute(statement("end_session"), (session.id,))
            if session.user:
                record_activity(transaction, "logout", user=session.user, client=client)
            logout_url = session.logout_url
    return logout_url


def end_sessions(transaction: Transaction, user: str) -> None:
    """End all sessions of a user, with their refresh and access tokens."""
    transaction.execute(statement("end_sessions_of"), (user,))


def invalid_credentials() -> Refused:
    return Refused(Problem("INVALID_CREDENTIALS", "The credentials are not right."))


def _live_session(transaction: Transaction, token: str) -> LiveSession | None:
    """Return the session of a token; None when there is none, or it must not go on."""
    # The id in a token is public: only the digest shows that the client holds the token itself.
    # Only the digest is stored: somebody who reads the table cannot use its sessions.
    values = (tokens.session_of(token), passwords.digest(token))
    rows = transaction.execute(statement("lock_session"), values)
    if not rows:
        return None
    is_current, is_renewed, is_alive, mode, user, logout_url = rows[0]
    if not is_alive or not (is_current or is_renewed):
        return None
    return LiveSession(str(values[0]), Mode(mode), user, not is_current, logout_url)


def _end_stolen_session(transaction: Transaction, issuer: Issuer, token: str) -> None:
    """End the session of a refresh token that has been used before."""
    # A token of this service that is not the current one; one that somebody has made up must not
    # log users out.
    if tokens.is_signed_here(token, secret=issuer.secret):
        values = (tokens.session_of(token), passwords.digest(token))
        transaction.execute(statement("end_stolen_session"), values)


def _issue_tokens(
    transaction: Transaction, issuer: Issuer, identity: Identity, *, mode: Mode, token: str
) -> IssuedTokens:
    """Return the tokens of a session.

    Raises `Refused`: INVALID_TOKEN for a user who may not act, INVALID_IP.
    """
    # The statement is that of every request; a login needs only some of its columns. A required
    # second factor that is not yet set up does not matter: setting it up takes a login.
    _, _, _, user, role, admin, app, _, _, networks, _ = transaction.execute(
        statement("find_actor"), identity.caller
    )[0]
    if user is None:
        raise invalid_token()
    require_address(networks_of(jsontext.loads_stored(networks)), identity.client.ip)
    claims = {
        "id": identity.user,
        "role": role,
        "app_access": bool(app),
        "admin_access": bool(admin),
        "session": identity.session,
    }
    return _signed_tokens(issuer, claims, mode, token)


def open_share_session(
    transaction: Transaction, issuer: Issuer, share: str, *, mode: Mode, client: ClientInfo
) -> IssuedTokens:
    """Open a session of a share whose row the caller has locked.

    Raises `Refused`: INVALID_CREDENTIALS where the share's creator may not make it, INVALID_IP.
    """
    session = str(uuid.uuid4())
    token = tokens.session_token(session, secret=issuer.secret)
    expires = datetime.now(UTC) + issuer.life_of(mode)
    values = (session, share, passwords.digest(token), mode, expires)
    transaction.execute(
        statement("open_share_session"),
        (*values, client.ip, client.user_agent, client.origin),
    )
    identity = Identity(session=session, client=client)
    return _issue_share_tokens(transaction, issuer, identity, mode=mode, token=token)


def _issue_share_tokens(
    transaction: Transaction, issuer: Issuer, identity: Identity, *, mode: Mode, token: str
) -> IssuedTokens:
    """Return the tokens of a session of a share, none of which outlives the share.

    Raises `Refused`: INVALID_CREDENTIALS for a share that has ended, INVALID_IP.
    """
    share = find_share(transaction.execute, identity)
    if share is None:
        raise invalid_credentials()
    require_address(networks_of(jsontext.loads_stored(share.networks)), identity.client.ip)
    claims = {
        "share": share.id,
        "role": share.role,
        "app_access": False,
        "admin_access": False,
        "session": identity.session,
    }
    return _signed_tokens(issuer, claims, mode, token, seconds_left=share.seconds_left)


def _signed_tokens(
    issuer: Issuer,
    claims: Mapping[str, object],
    mode: Mode,
    token: str,
    *,
    seconds_left: float | None = None,
) -> IssuedTokens:
    """Return the tokens of a session, none of which lives longer than the `seconds_left`."""
    # The cookie is looked up with each request: there is no need for claims that are signed.
    is_cookie = mode is Mode.SESSION
    life = issuer.session_life if is_cookie else issuer.access_life
    if seconds_left is not None:
        life = min(life, timedelta(seconds=seconds_left))
    access = None
    if not is_cookie:
        access = tokens.access_token(claims, secret=issuer.secret, life=life)
    return IssuedTokens(mode, token, life // timedelta(milliseconds=1), access)
