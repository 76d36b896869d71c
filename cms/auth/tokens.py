"""Tokens: signed ones for access and for links in mails, random ones, stored as digests only."""

from __future__ import annotations

import base64
import hmac
import secrets
import uuid
import zlib
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

import jwt
from cryptography.fernet import Fernet, InvalidToken

from cms.errors import Problem, Refused, invalid_token

ISSUER = "cms"
_ALGORITHM = "HS256"
_FORMER_FINGERPRINT = "mark"
"""What links of the version before call the claim `fingerprint`."""
# Without `exp` PyJWT would accept a token for ever.
_REQUIRED_CLAIMS = ["session", "iss", "iat", "exp"]


class LinkToken(NamedTuple):
    """The claims of a link's token: its user, and the account's fingerprint when it was made."""

    user: str
    fingerprint: str


def access_token(claims: Mapping[str, object], *, secret: str, life: timedelta) -> str:
    """Return a signed token of the claims that ends after `life`."""
    return _sign(claims, secret, life)


def claims_of(token: str, *, secret: str) -> Mapping[str, Any]:
    """Return the claims of an access token, which name a user (`id`) or a `share`.

    Raises `Refused` INVALID_TOKEN, with a reason when the token has expired.
    """
    try:
        claims = jwt.decode(
            token,
            secret,
            algorithms=[_ALGORITHM],  # never the one that the token itself names
            issuer=ISSUER,
            options={"require": _REQUIRED_CLAIMS},
        )
        # Statements cast both to uuid: text that is none must not reach the database.
        uuid.UUID(claims["id"] if "id" in claims else claims["share"])
        uuid.UUID(claims["session"])
        return claims
    except jwt.ExpiredSignatureError:
        raise _invalid_token("The access token has expired.", reason="expired") from None
    # ValueError, TypeError and AttributeError: the claims are JSON, so that an id in them may be of
    # any type.
    except (jwt.InvalidTokenError, LookupError, ValueError, TypeError, AttributeError):
        raise invalid_token() from None


def used_link() -> Refused:
    """Return the refusal of a link that was valid once."""
    sentence = "The link was used already, or the account has changed since."
    return _invalid_token(sentence, reason="used")


def _invalid_token(sentence: str, *, reason: str) -> Refused:
    return Refused(Problem("INVALID_TOKEN", sentence, {"reason": reason}))


def link_token(purpose: str, *, user: str, fingerprint: str, secret: str, life: timedelta) -> str:
    """Return a signed token for a link in a mail.

    Each purpose has a key of its own, so that a token serves no other purpose. The token ends when
    the `fingerprint` of the account changes, as it does by its use.
    """
    # Also under the former name: while machines are upgraded one by one, a link of a new one may
    # be opened at an old one, which knows no other.
    claims = {"id": user, "fingerprint": fingerprint, _FORMER_FINGERPRINT: fingerprint}
    return sign(purpose, claims, secret=secret, life=life)


def read_link_token(purpose: str, token: str, *, secret: str) -> LinkToken:
    """Return the contents of a link's token; raises `Refused` INVALID_TOKEN."""
    claims = read_signed(purpose, token, secret=secret, required=("id",))
    try:
        # Links that were sent before the claim had its name end within their own life.
        fingerprint = claims.get("fingerprint") or claims[_FORMER_FINGERPRINT]
        # The id is cast to uuid by statements: text that is none must not reach the database.
        return LinkToken(str(uuid.UUID(claims["id"])), str(fingerprint))
    except (LookupError, ValueError, TypeError, AttributeError):
        raise invalid_token() from None


def sign(purpose: str, claims: Mapping[str, object], *, secret: str, life: timedelta) -> str:
    """Return signed claims that serve one purpose and end after `life`."""
    return _sign(claims, purpose_key(secret, purpose), life)


def read_signed(
    purpose: str, token: str, *, secret: str, required: Iterable[str]
) -> Mapping[str, Any]:
    """Return the claims that `sign` has signed; raises `Refused` INVALID_TOKEN."""
    try:
        return jwt.decode(
            token,
            purpose_key(secret, purpose),
            algorithms=[_ALGORITHM],
            issuer=ISSUER,
            options={"require": [*required, "iss", "iat", "exp"]},
        )
    except jwt.ExpiredSignatureError:
        raise _invalid_token("The link has expired.", reason="expired") from None
    except jwt.InvalidTokenError:
        raise invalid_token() from None


def seal(purpose: str, text: str, *, secret: str) -> str:
    """Return a text that only this service can read, for one purpose."""
    return _fernet(purpose, secret).encrypt(zlib.compress(text.encode())).decode()


def unseal(purpose: str, sealed: str, *, secret: str, life: timedelta | None = None) -> str:
    """Return the text that `seal` has sealed; raises `Refused` INVALID_TOKEN, also after `life`."""
    seconds = int(life.total_seconds()) if life else None
    try:
        content = _fernet(purpose, secret).decrypt(sealed.encode(), ttl=seconds)
        return zlib.decompress(content).decode()
    except InvalidToken:
        raise invalid_token() from None


def _fernet(purpose: str, secret: str) -> Fernet:
    return Fernet(base64.urlsafe_b64encode(bytes.fromhex(purpose_key(secret, purpose))))


def session_token(session: str, *, secret: str) -> str:
    """Return a new token of a session: its id, random text, and a signature.

    By the signature the service knows even a token that has been replaced as its own.
    """
    # <session id>.<256 random bits>.<signature>
    body = f"{session}.{random_token()}"
    return f"{body}.{_sign_session(body, secret)}"


def next_session_token(token: str, *, secret: str) -> str:
    """Return the refresh token that follows one: always the same, which nobody else can tell."""
    session, _, _ = token.partition(".")
    body = f"{session}.{_hmac_text(token, purpose_key(secret, 'next session token'))}"
    return f"{body}.{_sign_session(body, secret)}"


def session_of(token: str) -> str | None:
    """Return the session that a token names, without a check of its signature; None without one."""
    # Three parts, as `session_token` writes them.
    if token.count(".") != 2:
        return None
    try:
        return str(uuid.UUID(token.partition(".")[0]))
    except ValueError:
        return None


def is_signed_here(token: str, *, secret: str) -> bool:
    """Tell whether this service once issued a session's token."""
    body, _, signature = token.rpartition(".")
    # In the same time for every wrong signature, so that none can be found byte by byte.
    return hmac.compare_digest(signature.encode(), _sign_session(body, secret).encode())


def random_token() -> str:
    """Return 256 random bits as text."""
    return secrets.token_urlsafe(32)


def _sign(claims: Mapping[str, object], key: str, life: timedelta) -> str:
    now = datetime.now(UTC)
    return jwt.encode(
        {**claims, "iss": ISSUER, "iat": now, "exp": now + life}, key, algorithm=_ALGORITHM
    )


def purpose_key(secret: str, purpose: str) -> str:
    """Return the key of one purpose."""
    # One SECRET, and a key for each purpose made of it: a token of one kind never verifies as
    # another.
    return hmac.digest(secret.encode(), purpose.encode(), "sha256").hex()


def _sign_session(body: str, secret: str) -> str:
    return _hmac_text(body, purpose_key(secret, "session"))


def _hmac_text(text: str, key: str) -> str:
    signature = hmac.digest(key.encode(), text.encode(), "sha256")
    return base64.urlsafe_b64encode(signature).rstrip(b"=").decode()
