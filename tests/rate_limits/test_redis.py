"""Machines count together in Redis, and each for itself while it is lost."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

import pytest
from redis.connection import SSLConnection, UnixDomainSocketConnection

from cms.config import Config
from cms.rate_limits import counters as counters_module
from cms.rate_limits.counters import RETRY_SECONDS, FallbackCounters, RedisLost
from cms.rate_limits.limiter import rate_limiter
from cms.rate_limits.redis_counters import RedisCounters, open_redis
from cms.rate_limits.shared_table import SharedTable
from cms.rate_limits.windows import Limit, Usage
from tests.client import Client
from tests.rate_limits.redis_server import RedisServer, redis_server
from tests.rate_limits.test_processes import ParallelClients, server
from tests.rate_limits.test_requests import LogCapture, left, service_log
from tests.waiting import eventually

__all__ = ["service_log"]

pytestmark = pytest.mark.release

LIMITS = (Limit(100, 60), Limit(1000, 600))


@pytest.fixture(scope="module")
def redis() -> Iterator[RedisServer]:
    with redis_server() as running:
        yield running


@pytest.fixture
def own_redis() -> Iterator[RedisServer]:
    """A Redis that the test may kill."""
    with redis_server() as running:
        yield running


@pytest.fixture
def make_limited(make_client: Callable[..., Client]) -> Callable[..., Client]:
    """Make a client of an application that counts in a Redis."""

    def make(running: RedisServer, **changes: object) -> Client:
        limits: dict[str, object] = {"rate_limiter_enabled": True, "redis": running.address}
        return make_client(**(limits | changes))

    return make


def test_of_300_parallel_requests_to_three_machines_exactly_100_pass(redis: RedisServer) -> None:
    machines = [RedisCounters(redis.address) for _ in range(3)]
    key = os.urandom(16)
    with ThreadPoolExecutor(12) as threads:
        calls = [threads.submit(machines[number % 3].acquire, key, LIMITS) for number in range(300)]
    assert sum(call.result().passed for call in calls) == 100


def test_redis_counts_like_the_memory_of_one_machine(redis: RedisServer) -> None:
    shared = RedisCounters(redis.address)
    local = SharedTable()
    key = os.urandom(16)
    limits = (Limit(5, 30), Limit(8, 60))

    def facts(usage: Usage) -> tuple[bool, int, int, bool, float]:
        ends_in = round(usage.seconds_left, -1)
        return usage.passed, usage.limit, usage.remaining, usage.is_first_refusal, ends_in

    for _ in range(10):
        assert facts(shared.acquire(key, limits)) == facts(local.acquire(key, limits))
    more = (Limit(50, 30), Limit(8, 60))
    for _ in range(10):
        assert facts(shared.acquire(key, more)) == facts(local.acquire(key, more))


def test_a_window_in_redis_ends_and_is_forgotten(redis: RedisServer) -> None:
    counters = RedisCounters(redis.address)
    key = os.urandom(16)
    limits = (Limit(2, 300), Limit(3, 600))
    assert [counters.acquire(key, limits).passed for _ in range(4)] == [True, True, False, False]
    with redis.client() as client:
        names = {name for name in client.scan_iter() if key.hex().encode() in name}
        assert sorted(client.ttl(name) // 301 for name in names) == [0, 1]
        short = min(names, key=client.ttl)
        client.pexpire(short, 1)
        eventually(lambda: not client.exists(short))
    refused = [counters.acquire(key, limits) for _ in range(3)]
    assert [usage.passed for usage in refused] == [True, False, False]
    assert 300 < refused[-1].seconds_left <= 600


def test_redis_holds_no_address(redis: RedisServer, make_limited: Callable[..., Client]) -> None:
    client = make_limited(redis)
    assert left(client.get("/auth"))[1] == 99
    with redis.client() as inside:
        assert not [name for name in inside.scan_iter() if b"127.0.0.1" in name]


def test_processes_count_together(redis: RedisServer, make_limited: Callable[..., Client]) -> None:
    # Without Redis they would share the memory of this process, so these look at Redis.
    one = make_limited(redis, secret="a" * 40, rate_limiter_per_minute=2)
    other = make_limited(redis, secret="a" * 40, rate_limiter_per_minute=2)
    assert [one.get("/auth").status, other.get("/auth").status] == [200, 200]
    assert [one.get("/auth").status, other.get("/auth").status] == [429, 429]


@pytest.mark.release
def test_without_redis_each_machine_counts_for_itself_and_logs_it_once(
    own_redis: RedisServer,
    make_limited: Callable[..., Client],
    admin_token: str,
    service_log: LogCapture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(counters_module, "RETRY_SECONDS", 0.2)
    client = make_limited(own_redis, rate_limiter_per_minute=5)
    admin = make_limited(own_redis).bearing(admin_token)
    assert admin.get("/server/health").data["redis"]["status"] == "ok"
    assert [client.get("/auth").status for _ in range(3)] == [200] * 3
    own_redis.kill()
    # From none on: what Redis has counted is not known here.
    assert [client.get("/auth").status for _ in range(7)] == [200] * 5 + [429] * 2
    lost = [text for text in service_log.messages if "counts requests for itself" in text]
    assert len(lost) == 1
    assert ".." not in lost[0]
    part = make_limited(own_redis).bearing(admin_token).get("/server/health").data["redis"]
    assert part["status"] == "error"
    assert part["reason"].startswith("Redis does not answer")
    own_redis.start()
    eventually(lambda: client.get("/auth").status == 200)
    back = [text for text in service_log.messages if text.startswith("Redis answers again")]
    assert len(back) == 1


def test_a_redis_that_hangs_delays_one_request_only(
    own_redis: RedisServer,
    make_limited: Callable[..., Client],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(counters_module, "RETRY_SECONDS", 600)
    asked: list[bytes] = []
    acquire = RedisCounters.acquire

    def noted(counters: RedisCounters, key: bytes, limits: Sequence[Limit]) -> Usage:
        asked.append(key)
        return acquire(counters, key, limits)

    monkeypatch.setattr(RedisCounters, "acquire", noted)
    client = make_limited(own_redis)
    assert client.get("/auth").status == 200
    own_redis.send_signal(signal.SIGSTOP)
    try:
        assert [client.get("/auth").status for _ in range(20)] == [200] * 20
        assert len(asked) == 1 + 1
    finally:
        own_redis.send_signal(signal.SIGCONT)


def test_a_redis_that_refuses_is_lost(redis: RedisServer) -> None:
    counters = RedisCounters(redis.address.replace("redis://", "redis://nobody:wrong@"))
    with pytest.raises(RedisLost):
        counters.acquire(os.urandom(16), LIMITS)


def test_while_redis_is_lost_one_request_at_a_time_tries_again(redis: RedisServer) -> None:
    now = [100.0]
    counters = FallbackCounters(
        RedisCounters("redis://127.0.0.1:1/0"),
        SharedTable(),
        clock=lambda: now[0],
    )
    counters.acquire(os.urandom(16), LIMITS)
    now[0] += RETRY_SECONDS
    tries = []
    together = threading.Barrier(4)

    def may_ask() -> None:
        together.wait(60)
        tries.append(counters._may_try_redis())

    with ThreadPoolExecutor(4) as threads:
        for _ in range(4):
            threads.submit(may_ask)
    assert sorted(tries) == [False, False, False, True]


def test_addresses_of_sockets_and_of_tls_are_read() -> None:
    pool = open_redis("redis+unix:///run/redis.sock?db=3").connection_pool
    assert pool.connection_class is UnixDomainSocketConnection
    assert (pool.connection_kwargs["path"], pool.connection_kwargs["db"]) == ("/run/redis.sock", 3)
    pool = open_redis("rediss://:secret@example.com:7000/2").connection_pool
    assert pool.connection_class is SSLConnection
    assert pool.connection_kwargs["port"] == 7000


def test_settings_without_redis_ask_none(config: Config) -> None:
    assert rate_limiter(config, "x") is None


@pytest.mark.release
def test_three_services_over_one_redis_pass_exactly_100(redis: RedisServer) -> None:
    with ExitStack() as stack:
        machines = [
            stack.enter_context(server(workers, REDIS=redis.address)) for workers in (1, 2, 1)
        ]
        for machine in machines:
            machine.send("192.0.2.1", 8)
        for attempt in range(10):
            clients = ParallelClients(machines, f"198.51.100.{attempt}")
            began, statuses = clients.send()
            if time.monotonic() - began < 1:
                assert statuses == {200: 100, 429: 200}
                return
        pytest.skip("this machine is too slow for 300 requests in a second")
