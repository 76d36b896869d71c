"""Tokens: signed access tokens, random refresh and static tokens of which only digests are stored."""

from __future__ import annotations

import hashlib
import secrets
import uuid
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import jwt

from cms.errors import Problem, Refused

ISSUER = "cms"
_ALGORITHM = "HS256"
_REQUIRED = ["id", "session", "iss", "iat", "exp"]


def access_token(claims: Mapping[str, object], *, secret: str, life: timedelta) -> str:
    """Return a signed token of the claims that ends after `life` (decisions, section 10)."""
    now = datetime.now(UTC)
    return jwt.encode({**claims, "iss": ISSUER, "iat": now, "exp": now + life}, secret, algorithm=_ALGORITHM)


def claims_of(token: str, *, secret: str) -> Mapping[str, Any]:
    """Return the claims of an access token; raises `Refused` INVALID_TOKEN, with a reason when it has expired."""
    try:
        claims = jwt.decode(token, secret, algorithms=[_ALGORITHM], issuer=ISSUER, options={"require": _REQUIRED})
        uuid.UUID(claims["id"]), uuid.UUID(claims["session"])
        return claims
    except jwt.ExpiredSignatureError:
        raise Refused(Problem("INVALID_TOKEN", "The access token has expired.", {"reason": "expired"})) from None
    except (jwt.InvalidTokenError, ValueError, TypeError, AttributeError):
        raise invalid_token() from None


def invalid_token() -> Refused:
    return Refused(Problem("INVALID_TOKEN", "The access token is not valid."))


def random_token() -> str:
    """Return 256 random bits as text."""
    return secrets.token_urlsafe(32)


def digest(token: str) -> str:
    """Return what is stored of a random token: with 256 bits of chance, a plain SHA-256 is enough."""
    return hashlib.sha256(token.encode()).hexdigest()
