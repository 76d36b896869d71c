"""The table of counters: exact between processes and threads, of a fixed size, never stuck."""

from __future__ import annotations

import mmap
import multiprocessing
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import pytest
from limits import RateLimitItemPerMinute, RateLimitItemPerSecond
from limits.strategies import FixedWindowRateLimiter

from cms.rate_limits.process_locks import FileLocks, MutexLocks, process_locks
from cms.rate_limits.shared_memory_storage import SharedMemoryStorage
from cms.rate_limits.shared_table import LOCKS, SharedTable, Windows, process_table
from cms.rate_limits.windows import NEVER, Limit, Window

forked = multiprocessing.get_context("fork")

MANY = (Limit(10**6, 600), Limit(10**6, 600))


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture(params=["mutex", "file"])
def table(request: pytest.FixtureRequest) -> SharedTable:
    """A table with each kind of locks."""
    if request.param == "file":
        return SharedTable(locks=FileLocks())
    if sys.platform != "linux":
        pytest.skip("there are no robust mutexes")
    return SharedTable(locks=MutexLocks(LOCKS))


@pytest.fixture
def storage(table: SharedTable) -> SharedMemoryStorage:
    return SharedMemoryStorage(table)


def key_of(number: int) -> bytes:
    return number.to_bytes(4, "little") + b"k" * 12


def counts(table: SharedTable, key: bytes) -> Windows:
    return table.change(key, lambda windows: (windows, windows))


def store(table: SharedTable, number: int, first: Window, second: Window = NEVER) -> None:
    table.change(key_of(number), lambda _: ((first, second), None))


def run_forked(*works: Callable[[], None]) -> list[int | None]:
    """Do each work in a process of its own, and return their exit codes."""
    processes = [forked.Process(target=work) for work in works]
    for process in processes:
        process.start()
    for process in processes:
        process.join(30)
    return [process.exitcode for process in processes]


@pytest.mark.quick(1)
@pytest.mark.parametrize("processes", [1, 2, 4])
def test_of_300_requests_of_several_processes_and_threads_exactly_100_pass(
    storage: SharedMemoryStorage, processes: int
) -> None:
    passed = mmap.mmap(-1, 300)
    limits = (Limit(100, 60), Limit(1000, 600))
    share = 300 // processes
    together = forked.Barrier(processes)

    def send(number: int) -> None:
        together.wait(10)
        with ThreadPoolExecutor(4) as threads:
            for index in range(share):
                threads.submit(record, number * share + index)

    def record(index: int) -> None:
        passed[index] = storage.acquire(key_of(1), limits).passed

    codes = run_forked(*[partial(send, number) for number in range(processes)])
    assert codes == [0] * processes
    assert sum(passed[:]) == 100


def test_a_process_that_is_killed_while_it_counts_blocks_nobody(
    storage: SharedMemoryStorage,
) -> None:
    storage.acquire(key_of(1), MANY)
    is_inside = forked.Event()

    def stay_inside() -> None:
        def wait(windows: Windows) -> tuple[Windows, None]:
            is_inside.set()
            time.sleep(60)
            return windows, None

        storage._table.change(key_of(1), wait)

    process = forked.Process(target=stay_inside)
    process.start()
    assert is_inside.wait(10)
    usages = []
    waiting = threading.Thread(target=lambda: usages.append(storage.acquire(key_of(1), MANY)))
    waiting.start()
    waiting.join(0.2)
    assert waiting.is_alive()  # the lock holds
    assert process.pid
    os.kill(process.pid, signal.SIGKILL)
    process.join()
    waiting.join(5)
    assert [usage.remaining for usage in usages] == [10**6 - 2]


@pytest.mark.release
def test_processes_that_are_killed_lose_no_count_of_others(storage: SharedMemoryStorage) -> None:
    workers = 4
    acknowledged = memoryview(mmap.mmap(-1, workers * 8)).cast("Q")

    def count(worker: int) -> None:
        while True:
            storage.acquire(key_of(1), MANY)
            acknowledged[worker] += 1

    kills = 12
    for kill in range(kills):
        processes = [forked.Process(target=count, args=(worker,)) for worker in range(workers)]
        for process in processes:
            process.start()
        time.sleep(0.03 + kill / 500)
        for process in processes:
            process.kill()
            process.join()
    total = counts(storage._table, key_of(1))[0][0]
    assert sum(acknowledged) > 0
    # The request of a killed process may have been counted, and not been acknowledged.
    assert sum(acknowledged) <= total <= sum(acknowledged) + workers * kills


def test_a_fork_while_a_thread_counts_leaves_the_child_able_to_count(
    storage: SharedMemoryStorage,
) -> None:
    is_inside = threading.Event()
    may_leave = threading.Event()

    def wait(windows: Windows) -> tuple[Windows, None]:
        is_inside.set()
        may_leave.wait(10)
        return windows, None

    thread = threading.Thread(target=lambda: storage._table.change(key_of(1), wait))
    thread.start()
    assert is_inside.wait(10)
    process = forked.Process(target=lambda: storage.acquire(key_of(2), MANY))
    process.start()
    process.join(10)
    may_leave.set()
    thread.join()
    assert process.exitcode == 0


def test_an_exception_inside_leaves_the_table_usable(table: SharedTable) -> None:
    with pytest.raises(ZeroDivisionError):
        table.change(key_of(1), lambda windows: (windows, 1 // 0))
    assert counts(table, key_of(1)) == (NEVER, NEVER)


def test_keys_of_one_bucket_have_counts_of_their_own() -> None:
    table = SharedTable(buckets=1)
    for number in range(16):
        store(table, number, (number + 1, 9.0))
    for number in range(16):
        assert counts(table, key_of(number)) == ((number + 1, 9.0), NEVER)


def test_a_full_bucket_forgets_first_whose_windows_end_first() -> None:
    table = SharedTable(buckets=1)
    for number in range(16):
        # The window of 5 ends first.
        store(table, number, (1, 100.0 + (number - 5) ** 2))
    store(table, 99, (1, 500.0), (3, 600.0))
    assert counts(table, key_of(99)) == ((1, 500.0), (3, 600.0))
    for number in set(range(16)) - {5}:
        assert counts(table, key_of(number))[0][0] == 1
    assert counts(table, key_of(5)) == (NEVER, NEVER)


@pytest.mark.release
def test_a_million_clients_take_no_more_memory() -> None:
    table = SharedTable(buckets=4)
    storage = SharedMemoryStorage(table)
    for number in range(5_000):
        assert storage.acquire(os.urandom(16), (Limit(1, 60),)).passed, number
    assert len(table._memory) == 4 * 16 * 40


def test_the_storage_serves_the_strategies_of_the_library() -> None:
    clock = Clock()
    storage = SharedMemoryStorage(SharedTable(), clock=clock)
    limiter = FixedWindowRateLimiter(storage)
    second = RateLimitItemPerSecond(3)
    minute = RateLimitItemPerMinute(5)
    assert limiter.test(second, "a")
    assert [limiter.hit(second, "a") for _ in range(5)] == [True, True, True, False, False]
    assert [limiter.hit(second, "b") for _ in range(2)] == [True, True]
    assert [limiter.hit(minute, "a") for _ in range(2)] == [True, True]
    stats = limiter.get_window_stats(second, "b")
    assert stats.remaining == 1
    assert stats.reset_time == pytest.approx(time.time() + 1, abs=0.2)
    clock.now += 1.0
    assert limiter.hit(second, "a")
    assert limiter.get_window_stats(minute, "a").remaining == 3
    limiter.clear(minute, "a")
    assert limiter.get_window_stats(minute, "a").remaining == 5
    storage.reset()
    assert limiter.get_window_stats(second, "b").remaining == 3
    assert storage.check()


def test_on_linux_the_locks_are_mutexes() -> None:
    if sys.platform == "linux":
        assert isinstance(process_locks(1), MutexLocks)


def test_a_lock_whose_holder_was_killed_is_whole_again() -> None:
    locks = process_locks(2)

    def die_with_it() -> None:
        locks.acquire(1)
        os.kill(os.getpid(), signal.SIGKILL)

    for _ in range(3):
        process = forked.Process(target=die_with_it)
        process.start()
        process.join()
        locks.acquire(1)
        locks.release(1)


def test_what_is_forked_later_shares_the_table_of_the_process() -> None:
    key = os.urandom(16)

    def count() -> None:
        SharedMemoryStorage(process_table()).acquire(key, MANY)

    count()
    assert run_forked(count) == [0]
    assert counts(process_table(), key)[0][0] == 2
