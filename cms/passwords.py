"""Passwords: argon2id with the second profile of RFC 9106 (specification, section 5)."""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache

from argon2 import PasswordHasher, Type
from argon2.exceptions import InvalidHashError, VerificationError

from cms.errors import Problem, Refused, invalid_payload
from cms.regex import compile_regex

_HASHER = PasswordHasher(time_cost=3, memory_cost=64 * 1024, parallelism=4, hash_len=32, salt_len=16, type=Type.ID)

LONGEST_PASSWORD = 1_000
MOST_IN_A_CALL = 100
"""How many secrets one call may have hashed: each takes 50 ms, and a body holds tens of thousands."""

_left: ContextVar[list[int] | None] = ContextVar("left", default=None)


@contextmanager
def rationed(most: int = MOST_IN_A_CALL) -> Iterator[None]:
    """Let what is done inside hash so many secrets."""
    token = _left.set([most])
    try:
        yield
    finally:
        _left.reset(token)


def hashed(password: str) -> str:
    """Return the argon2id hash in PHC form; about 50 ms of work. Raises `Refused` past what is `rationed`."""
    left = _left.get()
    if left is not None:
        if not left[0]:
            raise invalid_payload(f"A call takes at most {MOST_IN_A_CALL} values that are hashed")
        left[0] -= 1
    return _HASHER.hash(password)


def matches(stored: str | None, password: str) -> bool:
    """Tell whether the password is the stored one; without a stored one the work is the same and the answer no."""
    try:
        return _HASHER.verify(stored or _nobodys(), password) and stored is not None
    except (VerificationError, InvalidHashError):
        return False


def renewed(stored: str, password: str) -> str | None:
    """Return a hash by today's parameters, when the stored one was made by others."""
    return hashed(password) if _HASHER.check_needs_rehash(stored) else None


def check_password(password: str, *, policy: str | None = None) -> None:
    """Raise `Refused`: INVALID_PAYLOAD for a length that is not taken, FAILED_VALIDATION against the policy.

    The policy is a regular expression of linear time, bare or between slashes.
    """
    if not 0 < len(password) <= LONGEST_PASSWORD:
        raise invalid_payload(f"A password has 1 to {LONGEST_PASSWORD} characters", field="password")
    if policy and not _follows(password, policy):
        place = {"field": "password", "path": ["password"], "type": "regex", "valid": policy}
        raise Refused(Problem("FAILED_VALIDATION", "The password does not follow the password policy.", place))


def make_ready() -> None:
    """Make what unknown users are compared with, so that not even the first of them takes longer."""
    _nobodys()


def digest(token: str) -> str:
    """Return what is stored of a random token: with 256 bits of chance, a plain SHA-256 is enough."""
    return hashlib.sha256(token.encode()).hexdigest()


def generated() -> str:
    """Return a random password of 20 characters."""
    return secrets.token_urlsafe(15)


def _follows(password: str, policy: str) -> bool:
    """A policy that cannot be read lets no password through: it must not be weaker than it was meant."""
    try:
        return compile_regex(policy).search(password) is not None
    except ValueError:
        return False


@cache
def _nobodys() -> str:
    return hashed(secrets.token_urlsafe(16))
