"""Counters in Redis, for several machines."""

from __future__ import annotations

from collections.abc import Sequence

from redis import Redis, RedisError
from redis.backoff import NoBackoff
from redis.retry import Retry

from cms.rate_limits.counters import RedisLost
from cms.rate_limits.windows import Limit, Usage, acquire

PREFIX = "cms:limits"
TIMEOUT_SECONDS = 0.25
"""How long a request may wait for Redis."""

# All windows of a request are counted in one step, as the arithmetic of `windows.acquire` does it.
# KEYS are the windows; ARGV has the amount and the milliseconds of each. The answer has the count
# before the request and the milliseconds to the end of each.
_SCRIPT = b"""
local counts = {}
local passes = true
for index, key in ipairs(KEYS) do
    counts[index] = tonumber(redis.call('GET', key) or '0')
    if counts[index] >= tonumber(ARGV[2 * index - 1]) then
        passes = false
    end
end
local answer = {}
for index, key in ipairs(KEYS) do
    if passes or counts[index] == tonumber(ARGV[2 * index - 1]) then
        redis.call('INCR', key)
        if counts[index] == 0 then
            redis.call('PEXPIRE', key, ARGV[2 * index])
        end
    end
    answer[2 * index - 1] = counts[index]
    answer[2 * index] = redis.call('PTTL', key)
end
return answer
"""


class RedisCounters:
    """Counts requests of all machines; connects with the first of them."""

    def __init__(self, address: str) -> None:
        self._client = open_redis(address)
        self._count = self._client.register_script(_SCRIPT)

    def acquire(self, key: bytes, limits: Sequence[Limit]) -> Usage:
        """Count a request in a window for each of the limits; raises `RedisLost`."""
        # The braces put all keys of a client on one server of a cluster.
        keys = [f"{PREFIX}:{{{key.hex()}}}:{limit.seconds}" for limit in limits]
        arguments = [each for limit in limits for each in (limit.amount, limit.seconds * 1000)]
        try:
            answer = self._count(keys, arguments)
        except RedisError as error:
            raise RedisLost(no_answer(error)) from error
        windows = []
        for count, milliseconds in zip(answer[::2], answer[1::2], strict=True):
            # Redis answers 0 in the last millisecond of a window, and a negative number if there is
            # no window yet.
            seconds = max(milliseconds, 1) / 1000 if count else 0.0
            windows.append((count, seconds))
        return acquire(windows, limits, now=0.0)[1]

    def close(self) -> None:
        """Close the connections to Redis; a later request opens them again."""
        self._client.close()

    def ping(self) -> None:
        """Ask Redis for a sign of life; raises `RedisLost`."""
        try:
            self._client.ping()
        except RedisError as error:
            raise RedisLost(no_answer(error)) from error


def open_redis(address: str) -> Redis:
    """Return a client; it connects at its first use."""
    return Redis.from_url(
        address.replace("redis+unix:", "unix:"),
        socket_timeout=TIMEOUT_SECONDS,
        socket_connect_timeout=TIMEOUT_SECONDS,
        # Once more and at once: Redis may have closed an idle connection.
        retry=Retry(NoBackoff(), 1),
    )


def no_answer(error: Exception) -> str:
    """Return the text of an error of the client, as errors of the service hold it."""
    # Some texts of the library end with a full stop; sentences follow them in the log.
    return f"Redis does not answer: {str(error).rstrip('.')}"
