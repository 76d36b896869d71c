"""How much work an argon2 hash is: as the settings have it, and as a stored hash says itself."""

from __future__ import annotations

import base64
import re
import secrets
from typing import NamedTuple

MAX_TIME_COST = 100
MAX_MEMORY_COST = 2**20
"""In KiB: a process holds this much while it hashes a password."""
MAX_PARALLELISM = 64
MIN_MEMORY_PER_LANE = 8
"""In KiB: what argon2 needs."""

MAX_HASH_LENGTH = 500
_SALT_BYTES = 16
_DIGEST_BYTES = 32
# As the reference implementation reads it; version 1.0 names no version.
_PHC = re.compile(
    r"(\$argon2(?:id|i|d)\$(?:v=\d{1,3}\$)?m=(\d{1,7}),t=(\d{1,3}),p=(\d{1,2}))"
    r"\$[A-Za-z0-9+/]{11,}\$[A-Za-z0-9+/]{6,}",
    re.ASCII,
)


class HashParameters(NamedTuple):
    """Passes, memory in KiB, and lanes; the defaults are those that OWASP recommends first."""

    time_cost: int = 2
    memory_cost: int = 19_456
    parallelism: int = 1

    @property
    def prefix(self) -> str:
        """How the hashes that the service makes by these parameters begin."""
        return f"$argon2id$v=19$m={self.memory_cost},t={self.time_cost},p={self.parallelism}"

    @property
    def are_possible(self) -> bool:
        """Whether argon2 takes them."""
        enough = MIN_MEMORY_PER_LANE * self.parallelism
        return self.time_cost >= 1 and self.parallelism >= 1 and self.memory_cost >= enough

    def includes(self, other: HashParameters) -> bool:
        """Tell whether a hash by `other` takes no more of anything than one by these."""
        return all(own >= others for own, others in zip(self, other, strict=True))


DEFAULT_PARAMETERS = HashParameters()
RFC_9106 = HashParameters(3, 65_536, 4)
"""The second recommendation of RFC 9106, by which earlier versions have hashed."""
_LARGEST = HashParameters(MAX_TIME_COST, MAX_MEMORY_COST, MAX_PARALLELISM)


class ArgonHash(NamedTuple):
    """A hash in PHC form; `prefix` is all of it that decides how long it takes to compare."""

    text: str
    prefix: str


def parse_hash(text: str) -> ArgonHash | None:
    """Return a stored argon2 hash; None for one that no settings of this service can make.

    Nothing is compared with such a text, which would take another time.
    """
    match = _PHC.fullmatch(text) if len(text) <= MAX_HASH_LENGTH else None
    if match is None:
        return None
    prefix, memory, time, lanes = match.groups()
    parameters = HashParameters(int(time), int(memory), int(lanes))
    if not _LARGEST.includes(parameters) or not parameters.are_possible:
        return None
    return ArgonHash(text, prefix)


def dummy_hash(prefix: str) -> str:
    """Return a hash of no password, which takes as long to compare as any with this prefix."""
    return f"{prefix}${_random_text(_SALT_BYTES)}${_random_text(_DIGEST_BYTES)}"


def _random_text(length: int) -> str:
    return base64.b64encode(secrets.token_bytes(length)).decode().rstrip("=")
