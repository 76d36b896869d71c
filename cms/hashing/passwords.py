"""Passwords: hashed by argon2id, and compared in a time that does not reveal accounts."""

from __future__ import annotations

import hashlib
import secrets
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar, Token
from dataclasses import dataclass, field

from argon2 import PasswordHasher, Type, extract_parameters
from argon2.exceptions import InvalidHashError, VerificationError

from cms.errors import Problem, Refused, invalid_payload
from cms.hashing.hash_parameters import (
    MAX_HASH_LENGTH,
    RFC_9106,
    ArgonHash,
    HashParameters,
    dummy_hash,
    parse_hash,
)
from cms.hashing.hashing_queue import queue
from cms.processes.slots import WaitSlots
from cms.regex import compile_regex

MAX_PASSWORD_LENGTH = 1_000
MAX_HASHES_PER_CALL = 100
"""How many hashes one call may cause: each takes 20 ms, and a body holds tens of thousands."""


def _no_prefixes(_prefix: str) -> Iterable[str]:
    return ()


class Passwords:
    """How one installation hashes passwords, and compares them with stored hashes.

    `other_prefixes` finds how those stored hashes begin that do not begin like the service's own.
    `wait_slots` are those of a web process.
    """

    def __init__(
        self,
        parameters: HashParameters,
        *,
        other_prefixes: Callable[[str], Iterable[str]] = _no_prefixes,
        wait_slots: WaitSlots | None = None,
    ) -> None:
        self._parameters = parameters
        self._hasher = _hasher(parameters)
        self._other_prefixes = other_prefixes
        self._wait_slots = wait_slots
        self._dummies: Mapping[str, str] = {}  # by their prefixes; empty until they are needed
        # Of several first comparisons one looks for prefixes, which takes a moment.
        self._lock = threading.Lock()

    def hashed(self, password: str) -> str:
        """Return the argon2id hash of a password in PHC form.

        Raises `Refused`: `TooManyHashes` beyond the number that `limited_hashing` allows,
        SERVICE_UNAVAILABLE where too many others are being hashed.
        """
        limit = _limit.get()
        if limit is not None:
            limit.count_one()
        return queue.run(lambda: self._hasher.hash(password), self._wait_slots)

    def stand_in(self) -> str:
        """Return a text that looks like a hash, and is that of no password."""
        return dummy_hash(self._parameters.prefix)

    def rehashed(self, stored: str, password: str) -> str | None:
        """Return a hash by the parameters of the settings, where the stored one has others."""
        return self.hashed(password) if self.is_outdated(stored) else None

    def is_outdated(self, stored: str) -> bool:
        """Tell whether a stored hash has other parameters than those of the settings."""
        return self._hasher.check_needs_rehash(stored)

    def matches(self, stored: str | None, password: str, *, reveals_match: bool = False) -> bool:
        """Tell whether the password is the stored one; without a stored one it never is.

        The time does not reveal whether there is a stored hash, or its parameters: the work is one
        comparison for each set of parameters among the stored hashes. Only if the answer
        `reveals_match` anyway, a right password costs one comparison.

        Raises `Refused` SERVICE_UNAVAILABLE where too many others are being hashed.
        """
        compared = parse_hash(stored) if stored else None
        dummies = self._dummies_beside(compared)

        def compare() -> bool:
            is_right = compared is not None and _verify(compared.text, password)
            if not (is_right and reveals_match):
                for dummy in dummies:
                    _verify(dummy, password)
            return is_right

        return queue.run(compare, self._wait_slots)

    def verifies(self, stored: str, text: str) -> bool:
        """Tell whether a hash that is no secret is that of a text."""
        return queue.run(lambda: _verify(stored, text), self._wait_slots)

    def is_verifiable(self, stored: str) -> bool:
        """Tell whether a text is an argon2 hash that takes no more work than those of the service.

        A hash says itself how much memory and how many threads it takes.
        """
        if len(stored) > MAX_HASH_LENGTH or not stored.isascii():
            return False
        try:
            argon2 = extract_parameters(stored)
        except InvalidHashError:
            return False
        parameters = HashParameters(argon2.time_cost, argon2.memory_cost, argon2.parallelism)
        return self._parameters.includes(parameters) or RFC_9106.includes(parameters)

    def _dummies_beside(self, compared: ArgonHash | None) -> list[str]:
        """Return a dummy for all parameters of stored hashes but those of the compared one."""
        with self._lock:
            dummies = self._dummies or self._first_dummies()
            prefix = compared.prefix if compared else None
            if prefix is not None and prefix not in dummies:
                # Stored since by another program: from now on everybody is compared with one of
                # them.
                dummies = {**dummies, prefix: dummy_hash(prefix)}
            self._dummies = dummies
        return [dummy for other, dummy in dummies.items() if other != prefix]

    def _first_dummies(self) -> Mapping[str, str]:
        """Look through the stored hashes, at the first comparison for any account."""
        own = self._parameters.prefix
        dummies = {own: dummy_hash(own)}
        for prefix in self._other_prefixes(own):
            dummy = dummy_hash(prefix)
            # Of other texts than hashes the prefix is none.
            if parse_hash(dummy):
                dummies[prefix] = dummy
        return dummies


class TooManyHashes(Refused):
    """A call with more values that are hashed than it may have, whichever they are."""


@dataclass(slots=True, eq=False)
class limited_hashing:
    """Allows so many hashes inside this context, by which the hashes of fields are made there.

    A class, because a generator with `contextmanager` takes longer, and every write runs in it.
    """

    passwords: Passwords
    max_hashes: int = MAX_HASHES_PER_CALL
    is_rehearsal: bool = False
    _token: Token[limited_hashing | None] = field(init=False)

    def __enter__(self) -> None:
        self._token = _limit.set(self)

    def __exit__(self, *_: object) -> None:
        _limit.reset(self._token)

    def rehearsals(self) -> Iterator[None]:
        """Yield once for work without hashes, and once more if it took any: see `rehearsals`."""
        before = self.max_hashes
        self.is_rehearsal = True
        try:
            yield
        finally:
            self.is_rehearsal = False
        if self.max_hashes != before:
            self.max_hashes = before
            yield

    @contextmanager
    def again(self, *, in_vain: bool) -> Iterator[None]:
        """Do work whose hashes were counted before; see `hashing_again`."""
        before = self.max_hashes
        self.max_hashes = MAX_HASHES_PER_CALL
        self.is_rehearsal = in_vain
        try:
            yield
        finally:
            self.is_rehearsal = False
            self.max_hashes = before

    def count_one(self) -> None:
        """Count a hash; raises `TooManyHashes` where none is left."""
        if not self.max_hashes:
            reason = f"A call takes at most {MAX_HASHES_PER_CALL} values that are hashed"
            raise TooManyHashes(invalid_payload(reason).problems)
        self.max_hashes -= 1


# A context variable: requests run in threads, and each counts its own.
_limit: ContextVar[limited_hashing | None] = ContextVar("limit", default=None)


def hashed_value(text: str) -> str:
    """Return the hash of a field's value, as the installation hashes whose write this is."""
    limit = _limit.get()
    passwords = limit.passwords if limit else Passwords(HashParameters())
    if limit and limit.is_rehearsal:
        limit.count_one()
        return passwords.stand_in()
    return passwords.hashed(text)


def rehearsals() -> Iterator[None]:
    """Yield for work that may hash: first it is done without, so that what it refuses costs none.

    It is done again only if it takes any hash.
    """
    limit = _limit.get()
    return limit.rehearsals() if limit else iter((None,))


def hashing_again(*, in_vain: bool) -> AbstractContextManager[None]:
    """Allow once more the hashes of work that is repeated; `in_vain`, it makes none."""
    limit = _limit.get()
    return nullcontext() if limit is None else limit.again(in_vain=in_vain)


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
        sentence = "The password does not follow the password policy."
        raise Refused(Problem("FAILED_VALIDATION", sentence, extensions))


def digest(token: str) -> str:
    """Return the stored form of a random token: for 256 random bits a plain SHA-256 is enough."""
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


def _hasher(parameters: HashParameters) -> PasswordHasher:
    return PasswordHasher(*parameters, hash_len=32, salt_len=16, type=Type.ID)


# Its parameters do not count: those of the hash are taken.
_VERIFIER = PasswordHasher()


def _verify(stored: str, password: str) -> bool:
    try:
        return _VERIFIER.verify(stored, password)
    except (VerificationError, InvalidHashError):
        return False
