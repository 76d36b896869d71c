"""Passwords: argon2id with the second profile of RFC 9106."""

from __future__ import annotations

import hashlib
import secrets
from contextvars import ContextVar
from functools import cache

from argon2 import PasswordHasher, Type, extract_parameters
from argon2.exceptions import InvalidHashError, VerificationError

from cms.errors import Problem, Refused, invalid_payload
from cms.hashing_place import place
from cms.regex import compile_regex

# The second set of parameters that RFC 9106 recommends: three passes over 64 MiB in four lanes.
_TIME_COST = 3
_MEMORY_COST = 64 * 1024
_PARALLELISM = 4
_HASHER = PasswordHasher(
    time_cost=_TIME_COST,
    memory_cost=_MEMORY_COST,
    parallelism=_PARALLELISM,
    hash_len=32,
    salt_len=16,
    type=Type.ID,
)

MAX_PASSWORD_LENGTH = 1_000
_MAX_HASH_LENGTH = 500
MAX_HASHES_PER_CALL = 100
"""How many hashes one call may cause: each takes 50 ms, and a body holds tens of thousands."""

# A context variable: requests run in threads, and each counts its own.
_hashes_left: ContextVar[list[int] | None] = ContextVar("left", default=None)


class limited_hashing:
    """Allows so many hashes inside this context.

    A class, because a generator with `contextmanager` takes longer, and every write runs in it.
    """

    __slots__ = ("_max_hashes", "_token")

    def __init__(self, max_hashes: int = MAX_HASHES_PER_CALL) -> None:
        self._max_hashes = max_hashes

    def __enter__(self) -> None:
        self._token = _hashes_left.set([self._max_hashes])

    def __exit__(self, *_: object) -> None:
        _hashes_left.reset(self._token)


def hashed(password: str) -> str:
    """Return the argon2id hash of a password in PHC form; about 50 ms of work.

    Raises `Refused`: INVALID_PAYLOAD beyond the number that `limited_hashing` allows,
    SERVICE_UNAVAILABLE where too many others are being hashed.
    """
    left = _hashes_left.get()  # a list of one number, which code inside the context can lower
    if left is not None:
        if not left[0]:
            raise invalid_payload(
                f"A call takes at most {MAX_HASHES_PER_CALL} values that are hashed"
            )
        left[0] -= 1
    return place.run(lambda: _HASHER.hash(password))


def matches(stored: str | None, password: str) -> bool:
    """Tell whether the password is the stored one.

    Without a stored one the answer is no, after the same work: the time does not tell which users
    exist. Raises `Refused` SERVICE_UNAVAILABLE where too many others are being hashed.
    """
    compared = stored or _dummy_hash()
    try:
        return place.run(lambda: _HASHER.verify(compared, password)) and stored is not None
    except (VerificationError, InvalidHashError):
        return False


def is_verifiable(stored: str) -> bool:
    """Tell whether a text is an argon2 hash that takes no more work than those of the service.

    A hash says itself how much memory and how many threads it takes.
    """
    if len(stored) > _MAX_HASH_LENGTH or not stored.isascii():
        return False
    try:
        parameters = extract_parameters(stored)
    except InvalidHashError:
        return False
    return (
        parameters.time_cost <= _TIME_COST
        and parameters.memory_cost <= _MEMORY_COST
        and parameters.parallelism <= _PARALLELISM
    )


def rehashed(stored: str, password: str) -> str | None:
    """Return a hash with today's parameters, where the stored one has others."""
    return hashed(password) if _HASHER.check_needs_rehash(stored) else None


def check_password(password: str, *, policy: str | None = None) -> None:
    """Raise `Refused`: INVALID_PAYLOAD for a wrong length, FAILED_VALIDATION against the policy.

    The policy is a regular expression, bare or between slashes.
    """
    if not 0 < len(password) <= MAX_PASSWORD_LENGTH:
        raise invalid_payload(
            f"A password has 1 to {MAX_PASSWORD_LENGTH} characters", field="password"
        )
    if policy and not _matches_policy(password, policy):
        extensions = {"field": "password", "path": ["password"], "type": "regex", "valid": policy}
        raise Refused(
            Problem(
                "FAILED_VALIDATION", "The password does not follow the password policy.", extensions
            )
        )


def warm_up(*, web_threads: int) -> None:
    """Get ready for logins in a web process with so many threads, of which half stay free.

    The hash that unknown users are compared with is made: even the first must not take longer.
    """
    place.protect(web_threads)
    _dummy_hash()


def digest(token: str) -> str:
    """Return what is stored of a random token: of 256 random bits, a plain SHA-256 is enough."""
    return hashlib.sha256(token.encode()).hexdigest()


def random_password() -> str:
    """Return a random password of 20 characters."""
    return secrets.token_urlsafe(15)


def _matches_policy(password: str, policy: str) -> bool:
    """Tell whether a policy allows a password; one that cannot be read allows none.

    An unreadable policy must not be weaker than it was meant.
    """
    try:
        return compile_regex(policy).search(password) is not None
    except ValueError:
        return False


@cache
def _dummy_hash() -> str:
    # Not in its place, whose thread must not be there yet when a web server forks its workers.
    return _HASHER.hash(secrets.token_urlsafe(16))
