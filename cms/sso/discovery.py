"""Where a provider's endpoints are, and with which keys it signs."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from authlib.integrations.requests_client import OAuth2Session
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
        signing_keys: list[Key] = []
        for value in keys:
            key = _signing_key(value)
            # A key that cannot be read, as of an unknown curve, does not make the others useless.
            if key is not None:
                signing_keys.append(key)
        return KeySet(signing_keys)


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
    if not isinstance(value, str) or not value.startswith(("https://", "http://")):
        return None
    return value
