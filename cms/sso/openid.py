"""Where a provider's endpoints are, and the ID tokens that it signs, checked by its keys."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from authlib.integrations.requests_client import OAuth2Session
from authlib.oidc.core import CodeIDToken
from joserfc import jwt
from joserfc.errors import JoseError
from joserfc.jwk import JWKRegistry, Key, KeySet

from cms.config.providers import OPENID, Provider
from cms.sso.provider_errors import ProviderError
from cms.sso.transport import fetch_object

WELL_KNOWN = "/.well-known/openid-configuration"
DOCUMENT_SECONDS = 600.0
"""How long a discovery document is good; keys are asked for again when a token names another."""
KEYS_SECONDS = 1.0
"""How often keys are asked for at most, so that wrong tokens cause no flood of requests."""


# In the body no character of a secret can be read in two ways, so this comes first. A provider may
# want the other way of some clients.
_AUTH_METHODS = ("client_secret_post", "client_secret_basic")

ALGORITHMS = [
    "RS256", "RS384", "RS512",
    "PS256", "PS384", "PS512",
    "ES256", "ES384", "ES512",
]  # fmt: skip
"""Signatures with a private key: never none, and never HS, whose key a client would know."""

CLOCK_SKEW_SECONDS = 60
# The errors of the libraries for a malformed token; RecursionError comes from deeply nested JSON.
_WRONG = (JoseError, ValueError, TypeError, KeyError, AttributeError, RecursionError)


@dataclass(frozen=True, slots=True)
class Endpoints:
    """The addresses of a provider; those of OpenID Connect alone are None for OAuth 2.

    `auth_methods` are the ways in which a client may prove itself, to be tried in this order.
    """

    authorize: str
    access: str
    profile: str | None
    auth_methods: tuple[str, ...] = _AUTH_METHODS
    issuer: str | None = None
    keys: str | None = None
    end_session: str | None = None
    names_issuer: bool = False


@dataclass(frozen=True, slots=True)
class _CachedDocument:
    """An answer of a provider, and its time in seconds of the monotonic clock."""

    value: Any
    at: float

    def is_younger_than(self, seconds: float) -> bool:
        return time.monotonic() - self.at < seconds


class Discovery:
    """The endpoints and keys of a provider, remembered in this process."""

    def __init__(self, provider: Provider) -> None:
        self._provider = provider
        # Replaced as a whole. Threads that fetch one at the same time do the same work twice, which
        # does no harm.
        self._endpoints: _CachedDocument | None = None
        self._keys: _CachedDocument | None = None

    def endpoints(self, session: OAuth2Session) -> Endpoints:
        """Return the endpoints, of the settings or the discovery document."""
        if self._provider.driver != OPENID:
            return Endpoints(
                authorize=self._provider.authorize_url,
                access=self._provider.access_url,
                profile=self._provider.profile_url,
            )
        cached = self._endpoints
        if cached is None or not cached.is_younger_than(DOCUMENT_SECONDS):
            cached = _CachedDocument(self._fetch_endpoints(session), time.monotonic())
            self._endpoints = cached
        endpoints: Endpoints = cached.value
        return endpoints

    def keys(self, session: OAuth2Session, *, newer: bool = False) -> KeySet:
        """Return the keys; `newer` ones are asked for again, as they change now and then."""
        cached = self._keys
        seconds = KEYS_SECONDS if newer else DOCUMENT_SECONDS
        if cached is None or not cached.is_younger_than(seconds):
            cached = _CachedDocument(self._fetch_keys(session), time.monotonic())
            self._keys = cached
        keys: KeySet = cached.value
        return keys

    def _fetch_endpoints(self, session: OAuth2Session) -> Endpoints:
        url = self._provider.issuer_url
        document = fetch_object(session, url, "the discovery document")
        issuer = _address(document, "issuer")
        # Otherwise one provider could speak for another.
        if url.endswith(WELL_KNOWN) and url != issuer.rstrip("/") + WELL_KNOWN:
            raise ProviderError("the discovery document is that of another issuer")
        if not self._provider.allow_insecure:
            _require_tls_beside_tls(url, document)
        return Endpoints(
            authorize=_address(document, "authorization_endpoint"),
            access=_address(document, "token_endpoint"),
            profile=_optional_address(document, "userinfo_endpoint"),
            auth_methods=_auth_methods(document),
            issuer=issuer,
            keys=_address(document, "jwks_uri"),
            end_session=_optional_address(document, "end_session_endpoint"),
            names_issuer=document.get("authorization_response_iss_parameter_supported") is True,
        )

    def _fetch_keys(self, session: OAuth2Session) -> KeySet:
        url = self.endpoints(session).keys
        document = fetch_object(session, str(url), "the list of keys")
        keys = document.get("keys")
        if not isinstance(keys, list):
            raise ProviderError("the list of keys has no keys")
        # A key that cannot be read, as of an unknown curve, does not make the others useless.
        return KeySet([key for key in map(_signing_key, keys) if key is not None])


def _require_tls_beside_tls(url: str, document: Mapping[str, Any]) -> None:
    """Raise `ProviderError` where a document that came over TLS leads to plain http.

    Plain http is for providers on this machine. The document of another provider must not direct
    requests, which contain the secret of the client, to other programs on this machine.
    """
    if not url.startswith("https://"):
        return
    for name in ("token_endpoint", "userinfo_endpoint", "jwks_uri"):
        if str(document.get(name)).startswith("http://"):
            raise ProviderError(f'"{name}" of the discovery document does not begin with https')


def _auth_methods(document: Mapping[str, Any]) -> tuple[str, ...]:
    # Providers that name none take the header alone (OpenID Connect Discovery 1.0, section 3).
    supported = document.get("token_endpoint_auth_methods_supported", ["client_secret_basic"])
    if not isinstance(supported, list):
        return _AUTH_METHODS
    return tuple(method for method in _AUTH_METHODS if method in supported) or _AUTH_METHODS


def _signing_key(value: object) -> Key | None:
    # Others are for encryption, or of kinds that no algorithm here uses.
    if not isinstance(value, dict) or value.get("use", "sig") != "sig":
        return None
    if value.get("kty") not in ("RSA", "EC"):
        return None
    try:
        return JWKRegistry.import_key(value)
    except (JoseError, ValueError, TypeError, KeyError, AttributeError):
        return None


def _address(document: Mapping[str, Any], name: str) -> str:
    value = _optional_address(document, name)
    if value is None:
        raise ProviderError(f'the discovery document has no "{name}"')
    return value


def _optional_address(document: Mapping[str, Any], name: str) -> str | None:
    value = document.get(name)
    is_address = isinstance(value, str) and value.startswith(("https://", "http://"))
    return value if is_address else None


class InvalidIdToken(Exception):
    """An ID token that must not be believed; the text says why, without the token."""


class Expected(NamedTuple):
    """The values that an ID token must have."""

    issuer: str
    client_id: str
    nonce: str
    access_token: str


def checked_claims(
    token: str, expected: Expected, discovery: Discovery, session: OAuth2Session
) -> Mapping[str, Any]:
    """Return the claims of an ID token (OpenID Connect Core 1.0, section 3.1.3.7).

    Raises `InvalidIdToken`.
    """
    decoded = _verified(token, discovery.keys(session))
    if decoded is None:
        decoded = _verified(token, discovery.keys(session, newer=True))
    if decoded is None:
        raise InvalidIdToken("the ID token is signed with no key of the provider")
    claims: CodeIDToken = CodeIDToken(
        decoded.claims,
        decoded.header,
        options={
            "iss": {"essential": True, "value": expected.issuer},
            "aud": {"essential": True, "value": expected.client_id},
        },
        params={
            "nonce": expected.nonce,
            "client_id": expected.client_id,
            "access_token": expected.access_token,
        },
    )
    try:
        claims.validate(leeway=CLOCK_SKEW_SECONDS)
    except _WRONG as error:
        reason = getattr(error, "description", None) or type(error).__name__
        raise InvalidIdToken(f"the ID token is not for this login: {reason}") from None
    return dict(claims)


def _verified(token: str, keys: KeySet) -> jwt.Token | None:
    """Return the decoded token; None where no key has signed it."""
    for key in keys:
        try:
            return jwt.decode(token, key, algorithms=ALGORITHMS)
        except _WRONG:
            continue
    return None
