"""Keys in Redis that all machines see, each for a time."""

from __future__ import annotations

from collections.abc import Sequence

from redis import RedisError

from cms.rate_limits.counters import RedisLost
from cms.rate_limits.redis_counters import no_answer, open_redis

PREFIX = "cms:writers"


class RedisKeys:
    """Keeps keys in Redis; connects with the first of them."""

    def __init__(self, address: str) -> None:
        self._client = open_redis(address)

    def add(self, keys: Sequence[bytes], seconds: float) -> None:
        """Keep keys for some seconds; raises `RedisLost`."""
        try:
            for key in keys:
                self._client.set(_name(key), 1, px=max(1, round(seconds * 1000)))
        except RedisError as error:
            raise RedisLost(no_answer(error)) from error

    def has_any(self, keys: Sequence[bytes]) -> bool:
        """Tell whether one of the keys is kept; raises `RedisLost`."""
        try:
            # One after another: a cluster has them on different servers.
            return any(self._client.exists(_name(key)) for key in keys)
        except RedisError as error:
            raise RedisLost(no_answer(error)) from error


def _name(key: bytes) -> str:
    return f"{PREFIX}:{key.hex()}"
