"""The state of a login that is under way: signed, in a cookie of the browser."""

from __future__ import annotations

import base64
import hmac
from datetime import timedelta
from typing import Any, NamedTuple, cast

from cms import jsontext
from cms.auth import tokens
from cms.auth.sessions import LoginSource, Mode
from cms.errors import Problem, Refused
from cms.sso.provider_errors import ProviderError

LIFE = timedelta(minutes=10)
"""For the login at the provider."""
FACTOR_LIFE = timedelta(minutes=5)
"""For the code of the second factor after it."""

MAX_COOKIE = 3_800
"""Browsers keep cookies of 4,096 bytes, with the name and what else is set of them."""

_STATE = "external login"
_FACTOR = "second factor of an external login"


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
