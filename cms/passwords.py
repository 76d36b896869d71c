"""Passwords: argon2id with the second profile of RFC 9106 (specification, section 5)."""

from __future__ import annotations

import secrets
from functools import cache

from argon2 import PasswordHasher, Type
from argon2.exceptions import InvalidHashError, VerificationError

_HASHER = PasswordHasher(time_cost=3, memory_cost=64 * 1024, parallelism=4, hash_len=32, salt_len=16, type=Type.ID)

LONGEST_PASSWORD = 1_000


def hashed(password: str) -> str:
    """Return the argon2id hash in PHC form; about 50 ms of work."""
    return _HASHER.hash(password)


def matches(stored: str | None, password: str) -> bool:
    """Tell whether the password is the stored one; without a stored one the work is the same and the answer no."""
    try:
        return _HASHER.verify(stored or _nobodys(), password) and stored is not None
    except (VerificationError, InvalidHashError):
        return False


def make_ready() -> None:
    """Make what unknown users are compared with, so that not even the first of them takes longer."""
    _nobodys()


def generated() -> str:
    """Return a random password of 20 characters."""
    return secrets.token_urlsafe(15)


@cache
def _nobodys() -> str:
    return hashed(secrets.token_urlsafe(16))
