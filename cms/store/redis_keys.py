"""Keys in Redis that all machines see, each for a time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from limits.storage import RedisStorage
from redis.backoff import NoBackoff
from redis.retry import Retry

from cms.store.recent_writers import KeysLost

TIMEOUT_SECONDS = 0.25
"""How long a request may wait for Redis."""

PREFIX = "cms:writers"


class RedisKeys:
    """Keeps keys in Redis; connects with the first of them."""

    def __init__(self, address: str) -> None:
        # The storage of the library of the rate limits, for it reads every kind of address.
        storage = RedisStorage(
            address,
            socket_timeout=TIMEOUT_SECONDS,
            socket_connect_timeout=TIMEOUT_SECONDS,
            # Once more and at once: Redis may have closed an idle connection.
            retry=Retry(NoBackoff(), 1),  # type: ignore[arg-type]  # passed on to redis
        )
        self._errors = storage.base_exceptions
        # The library's type names few of the methods of a client.
        self._client: Any = storage.get_connection()

    def add(self, keys: Sequence[bytes], seconds: float) -> None:
        """Keep keys for so long; raises `KeysLost`."""
        try:
            for key in keys:
                self._client.set(_name(key), 1, px=max(1, round(seconds * 1000)))
        except self._errors as error:
            raise KeysLost(f"Redis does not answer: {error}") from error

    def has_any(self, keys: Sequence[bytes]) -> bool:
        """Tell whether one of the keys is kept; raises `KeysLost`."""
        try:
            # One after another: a cluster has them on different servers.
            return any(self._client.exists(_name(key)) for key in keys)
        except self._errors as error:
            raise KeysLost(f"Redis does not answer: {error}") from error


def _name(key: bytes) -> str:
    return f"{PREFIX}:{key.hex()}"
