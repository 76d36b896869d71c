"""ID tokens of OpenID Connect, checked (OpenID Connect Core 1.0, section 3.1.3.7)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple, Protocol

from authlib.oidc.core import CodeIDToken
from joserfc import jwt
from joserfc.errors import JoseError
from joserfc.jwk import KeySet

ALGORITHMS = [
    "RS256", "RS384", "RS512",
    "PS256", "PS384", "PS512",
    "ES256", "ES384", "ES512",
]  # fmt: skip
"""Signatures with a private key: never none, and never HS, whose key a client would know."""

CLOCK_SKEW_SECONDS = 60


# The errors of the libraries for a malformed token; RecursionError comes from deeply nested JSON.
_WRONG = (JoseError, ValueError, TypeError, KeyError, AttributeError, RecursionError)


class InvalidIdToken(Exception):
    """An ID token that must not be believed; the text says why, without the token."""


class Expected(NamedTuple):
    """The values that an ID token must have."""

    issuer: str
    client_id: str
    nonce: str
    access_token: str


class KeySource(Protocol):
    """Returns the keys of a provider; `newer` ones are those that it has by now."""

    def __call__(self, *, newer: bool) -> KeySet: ...


def checked_claims(token: str, expected: Expected, *, keys: KeySource) -> Mapping[str, Any]:
    """Return the claims of an ID token; raises `InvalidIdToken`."""
    decoded = _verified(token, keys(newer=False)) or _verified(token, keys(newer=True))
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
