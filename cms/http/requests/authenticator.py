"""Who calls: the identity that the headers of a request name."""

from __future__ import annotations

import hmac
import time
from collections.abc import Callable, Mapping
from io import BytesIO
from typing import Any, NamedTuple

import falcon
from cachebox import LRUCache

from cms.auth.tokens import claims_of, session_of
from cms.emails import is_email
from cms.errors import invalid_token
from cms.hashing.passwords import digest
from cms.http.requests.cookies import session_cookie
from cms.http.requests.origins import SAFE_METHODS, Origins
from cms.store.identity import ANONYMOUS, Identity

MAX_CACHED_TOKENS = 5_000
MAX_CACHED_TOKEN_LENGTH = 200
"""The service's own tokens are shorter."""


TOKEN_PARAMETER = "access_token"
"""The parameter of the address of an asset that stands for the Authorization header."""


class _VerifiedToken(NamedTuple):
    """The caller that an access token names, and the time of its expiry in seconds."""

    identity: Identity
    expires: float


class Authenticator:
    """Identifies callers from their requests alone; the store checks whether they may act.

    `seal` is the key of digests of requests that are stored: a body may hold a password, which
    nobody must be able to guess from them.
    """

    def __init__(
        self,
        secret: str,
        *,
        origins: Origins,
        trusted_proxies: int = 0,
        identify: Identify | None = None,
        may_be_unknown: bool = False,
    ) -> None:
        self._secret = secret
        self._identify = identify
        self._may_be_unknown = may_be_unknown
        # A key for one purpose, so that stored digests reveal nothing about the secret itself.
        self.seal = hmac.digest(secret.encode(), b"idempotency", "sha256")
        self._origins = origins
        self.trusted_proxies = trusted_proxies
        self._verified_tokens: LRUCache[str, _VerifiedToken] = LRUCache(MAX_CACHED_TOKENS)
        self._digests: LRUCache[str, str] = LRUCache(MAX_CACHED_TOKENS)

    def identify(self, request: falcon.Request) -> Identity:
        """Return the caller of the header or the address, else the user of the browser.

        Raises `Refused`.
        """
        kind, _, token = request.env.get("HTTP_AUTHORIZATION", "").partition(" ")
        token = token.strip() if kind.lower() == "bearer" else ""
        # Both come before a cookie, which a browser sends along without being asked.
        token = token or request.get_param(TOKEN_PARAMETER)
        if not token:
            return self._from_browser(request)
        # Access tokens are JWTs of three parts; static tokens have no dots.
        if token.count(".") == 2:
            return self._from_access_token(token)
        return Identity(token=self._digests.get(token) or self._digest(token))

    def _from_browser(self, request: falcon.Request) -> Identity:
        """Return the user of the surrounding application, else the caller of the session cookie."""
        if self._identify is not None:
            identity = host_identity(
                self._identify, request.env, may_be_unknown=self._may_be_unknown
            )
            if identity is not None:
                # Most likely it recognizes users by a cookie, too, or by something else that
                # browsers send unasked.
                self._require_own_page(request)
                return identity
        cookie = session_cookie(request)
        if not cookie:
            return ANONYMOUS
        return self._from_cookie(request, cookie)

    def _require_own_page(self, request: falcon.Request) -> None:
        """Raise `Refused` FORBIDDEN for another site's request that might change something.

        Browsers send cookies with such requests as well.
        """
        if request.method not in SAFE_METHODS:
            self._origins.require(request)

    def _from_cookie(self, request: falcon.Request, cookie: str) -> Identity:
        self._require_own_page(request)
        session = session_of(cookie)
        if session is None:
            raise invalid_token()
        return Identity(session=session, cookie=self._digest(cookie))

    def _digest(self, token: str) -> str:
        """Return the digest of a token, which is stored instead of the token."""
        # Texts of any length would fill the memory of the cache.
        if len(token) > MAX_CACHED_TOKEN_LENGTH:
            return digest(token)
        return self._digests.setdefault_with(token, lambda: digest(token))

    def _from_access_token(self, token: str) -> Identity:
        """Return the caller of an access token.

        The signature is checked once, because that takes longer than the database does; the expiry
        is checked every time.
        """
        # Only verified tokens get into the cache: an exception of `_verify` leaves it as it is.
        verified = self._verified_tokens.setdefault_with(token, lambda: self._verify(token))
        if time.time() < verified.expires:
            return verified.identity
        # Raises the refusal of an expired token.
        return self._verify(token).identity

    def _verify(self, token: str) -> _VerifiedToken:
        claims = claims_of(token, secret=self._secret)
        # The token of a share names no user: its session says which share it is.
        identity = Identity(user=claims.get("id"), session=claims["session"])
        return _VerifiedToken(identity, float(claims["exp"]))


Identify = Callable[[dict[str, Any]], str | None]
"""Returns the e-mail address of the user who is signed in, from the WSGI environment of a request.

None stands for nobody. The environment is a copy without a body, which is the service's to read.
"""


class IdentifyFailed(Exception):
    """The function of the surrounding application failed, which is no fault of the request."""


def host_identity(
    identify: Identify, environ: Mapping[str, Any], *, may_be_unknown: bool
) -> Identity | None:
    """Return the user whom the surrounding application names; None where it names nobody.

    With `may_be_unknown` a value that is no address of a user stands for a public request, and is
    `Refused` INVALID_TOKEN otherwise. Raises `IdentifyFailed`.
    """
    try:
        email = identify(_without_body(environ))
    except Exception as error:
        # Always the same type: an error of a web framework could be taken for a refusal, and some
        # refusals make the caller anonymous.
        raise IdentifyFailed("identify raised an exception") from error
    if email is None:
        return None
    # Not `isinstance`: lazy values of frameworks pretend to be of the type that they stand for.
    if not issubclass(type(email), str):
        raise IdentifyFailed(f"identify returned {type(email).__name__}, not str or None")
    # A subclass may have other methods, as one for HTML.
    email = str.__str__(email)
    # Nobody has such an address, and the database takes not every text.
    if not is_email(email) or not email.isprintable():
        if may_be_unknown:
            return ANONYMOUS
        raise invalid_token()
    return Identity(email=email, may_be_unknown=may_be_unknown)


def _without_body(environ: Mapping[str, Any]) -> dict[str, Any]:
    # Frameworks make a request of it, and some read a form without being asked.
    copy = {**environ, "wsgi.input": BytesIO(), "CONTENT_LENGTH": "0"}
    copy.pop("HTTP_TRANSFER_ENCODING", None)
    return copy
