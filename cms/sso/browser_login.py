"""Logins by providers that the browser visits, and where it may go once such a login is over.

The state of a login that is under way is in a cookie of the browser, signed or sealed.
"""

from __future__ import annotations

import base64
import hmac
import re
from collections.abc import Mapping
from datetime import timedelta
from typing import Any, NamedTuple, Protocol, cast
from urllib.parse import urlsplit

from cms import jsontext
from cms.auth import tokens
from cms.auth.sessions import LoginSource, Mode
from cms.config.providers import Provider
from cms.errors import Problem, Refused, invalid_query
from cms.sso.profile import Profile
from cms.sso.provider_errors import ProviderError
from cms.text_shapes import DEFAULT_PORTS, url_host

LIFE = timedelta(minutes=10)
"""For the login at the provider."""
FACTOR_LIFE = timedelta(minutes=5)
"""For the code of the second factor after it."""

MAX_COOKIE = 3_800
"""Browsers keep cookies of 4,096 bytes, with the name and what else is set of them."""

_STATE = "external login"
_FACTOR = "second factor of an external login"
# Browsers take a backslash for a slash, and leave out line breaks and tabs.
_NEVER_IN_A_REDIRECT = re.compile(r"[\x00-\x20\x7f-\U0010ffff\\#]")
MAX_REDIRECT_LENGTH = 2_000
"""A redirect is kept in a cookie, and browsers keep cookies of 4,096 bytes."""


class LoginState(NamedTuple):
    """One login: `id` is the `state` that goes to the provider and comes back.

    `request` is the id of a request of SAML, which its answer names.
    """

    id: str
    provider: str
    redirect: str | None
    request: str | None = None

    @classmethod
    def begin(cls, provider: str, redirect: str | None) -> LoginState:
        """Return the state of a new login."""
        return cls(tokens.random_token(), provider, redirect)

    def signed(self, secret: str) -> str:
        """Return the state as the browser keeps it."""
        return tokens.sign(_STATE, self._asdict(), secret=secret, life=LIFE)

    @classmethod
    def read(cls, text: str, *, provider: str, state: str, secret: str) -> LoginState:
        """Return the login that a browser has begun; raises `Refused` INVALID_CREDENTIALS."""
        try:
            claims = tokens.read_signed(_STATE, text, secret=secret, required=("id", "provider"))
        except Refused:
            raise not_begun() from None
        login = cls._make(map(claims.get, cls._fields))
        is_same = hmac.compare_digest(login.id.encode(), state.encode())
        if not is_same or login.provider != provider:
            raise not_begun()
        return login

    def code_verifier(self, secret: str) -> str:
        """Return the text that proves to the provider that this service began the login (PKCE)."""
        return self._derived("code verifier", secret)

    def nonce(self, secret: str) -> str:
        """Return the text that the provider's answer has to repeat."""
        return self._derived("nonce", secret)

    def _derived(self, purpose: str, secret: str) -> str:
        # Made of the state, so that neither stands in the cookie.
        key = tokens.purpose_key(secret, purpose).encode()
        digest = hmac.digest(key, self.id.encode(), "sha256")
        return base64.urlsafe_b64encode(digest).rstrip(b"=").decode()


class BegunLogin(NamedTuple):
    """A login that begins: the address for the browser, and the state to remember."""

    url: str
    state: LoginState


class ConfirmedUser(NamedTuple):
    """A user whom a provider has confirmed.

    `logout_url` ends the session at the provider, `refresh_token` asks it for the user again.
    """

    profile: Profile
    logout_url: str | None = None
    refresh_token: str | None = None


class ProviderClient(Protocol):
    """Logs users in at one provider."""

    def begin(self, redirect: str | None) -> BegunLogin:
        """Begin a login; raises `ProviderError`."""

    def confirmed_user(self, state: LoginState, answer: Mapping[str, str]) -> ConfirmedUser:
        """Return the user of an answer, the query with which a browser came back.

        Raises `ProviderError`, and `Refused` INVALID_CREDENTIALS for an answer that is not to be
        believed, or that says no.
        """

    def renewed_token(self, token: str) -> str | None:
        """Return the refresh token that follows one of the provider; None where it says no.

        Raises `ProviderError`.
        """

    def check(self) -> None:
        """Ask the provider all that it answers without a login; raises `ProviderError`."""

    def reach(self) -> None:
        """Ask the provider for its public documents; raises `ProviderError`.

        Unlike `check` it can be repeated every few seconds: it does not look like an attack.
        """


class PendingFactor(NamedTuple):
    """A login whose user the provider has confirmed, and that still needs a second factor."""

    user: str
    mode: Mode
    source: LoginSource

    def sealed(self, secret: str) -> str:
        """Return it as the browser keeps it, without an address that is too long for a cookie.

        Raises `ProviderError` where the refresh token is too long as well.
        """
        for source in (self.source, self.source._replace(logout_url=None)):
            text = jsontext.dumps([self.user, self.mode, *source]).decode()
            sealed = tokens.seal(_FACTOR, text, secret=secret)
            if len(sealed) <= MAX_COOKIE:
                return sealed
        raise ProviderError("its refresh token is too long for a cookie")

    @classmethod
    def read(cls, sealed: str, *, provider: str, secret: str) -> PendingFactor:
        """Return the login that waits for its code; raises `Refused` INVALID_CREDENTIALS."""
        try:
            text = tokens.unseal(_FACTOR, sealed, secret=secret, life=FACTOR_LIFE)
        except Refused:
            raise not_begun() from None
        user, mode, *source = cast(list[Any], jsontext.loads_stored(text))
        pending = cls(user, Mode(mode), LoginSource(*source))
        if pending.source.provider != provider:
            raise not_begun()
        return pending


def not_begun() -> Refused:
    """Return the refusal of an answer for which no login of this browser waits."""
    sentence = "No login of this browser waits for this, or not any more: begin again."
    return Refused(Problem("INVALID_CREDENTIALS", sentence))


def checked_redirect(provider: Provider, redirect: str | None) -> str | None:
    """Return the address of `redirect`; raises `Refused` INVALID_QUERY for one not on the list.

    It equals an address of the list in scheme, host, port and path, and may have a query.
    """
    if redirect is None:
        return None
    target = _parts_of(redirect)
    if target is None or target not in map(_parts_of, provider.redirect_allow_list):
        raise invalid_query('"redirect" is not an allowed address', parameter="redirect")
    return redirect


def with_reason(redirect: str, code: str) -> str:
    """Return the address with the code of a refusal in its query."""
    separator = "&" if "?" in redirect else "?"
    return f"{redirect}{separator}reason={code}"


def _parts_of(address: str) -> tuple[str, str, int, str] | None:
    """Return scheme, host, port and path of an address; None where browsers may see another one."""
    if len(address) > MAX_REDIRECT_LENGTH or _NEVER_IN_A_REDIRECT.search(address):
        return None
    try:
        parts = urlsplit(address)
        port = parts.port
    except ValueError:
        return None
    if parts.scheme not in DEFAULT_PORTS or not parts.hostname:
        return None
    host = url_host(parts.hostname)
    # Nothing else may stand beside host and port: no user, and no text behind a bracket.
    if parts.netloc.lower() not in (host, f"{host}:{port}"):
        return None
    if port is None:
        port = DEFAULT_PORTS[parts.scheme]
    return parts.scheme, host, port, parts.path.rstrip("/")
