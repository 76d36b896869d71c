"""Redis as the library `limits` opens it: that reads every kind of address."""

from __future__ import annotations

from limits.storage import RedisStorage
from redis.backoff import NoBackoff
from redis.retry import Retry

TIMEOUT_SECONDS = 0.25
"""How long a request may wait for Redis."""


def open_redis(address: str) -> RedisStorage:
    """Return a client of the library; it connects at its first use."""
    return RedisStorage(
        address,
        socket_timeout=TIMEOUT_SECONDS,
        socket_connect_timeout=TIMEOUT_SECONDS,
        # Once more and at once: Redis may have closed an idle connection.
        retry=Retry(NoBackoff(), 1),  # type: ignore[arg-type]  # passed on to redis
    )


def no_answer(error: Exception) -> str:
    """Return the text of an error of the client, as errors of the service hold it."""
    # Some texts of the library end with a full stop; sentences follow them in the log.
    return f"Redis does not answer: {str(error).rstrip('.')}"
