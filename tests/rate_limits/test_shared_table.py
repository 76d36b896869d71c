"""The table of counters: exact between processes and threads, of a fixed size, never stuck."""

from __future__ import annotations

import mmap
import multiprocessing
import os
import signal
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import pytest

from cms.rate_limits.shared_table import PROCESS_TABLE, ProcessLock, SharedTable
from cms.rate_limits.windows import NEVER, Limit
from tests.waiting import eventually

forked = multiprocessing.get_context("fork")

MANY = (Limit(10**6, 600), Limit(10**6, 600))


def key_of(number: int) -> bytes:
    return number.to_bytes(4, "little") + b"k" * 12


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
    processes: int,
) -> None:
    table = SharedTable()
    passed = mmap.mmap(-1, 300)
    limits = (Limit(100, 60), Limit(1000, 600))
    share = 300 // processes
    together = forked.Barrier(processes)

    def send(number: int) -> None:
        together.wait(60)
        with ThreadPoolExecutor(4) as threads:
            for index in range(share):
                threads.submit(record, number * share + index)

    def record(index: int) -> None:
        passed[index] = table.acquire(key_of(1), limits).passed

    codes = run_forked(*[partial(send, number) for number in range(processes)])
    assert codes == [0] * processes
    assert sum(passed[:]) == 100


def test_a_process_that_is_killed_while_it_counts_blocks_nobody() -> None:
    table = SharedTable()
    table.acquire(key_of(1), MANY)
    is_inside = forked.Event()

    def stay_inside() -> None:
        with table.lock:
            is_inside.set()
            forked.Event().wait(60)

    process = forked.Process(target=stay_inside)
    process.start()
    assert is_inside.wait(60)
    usages = []
    waiting = threading.Thread(target=lambda: usages.append(table.acquire(key_of(1), MANY)))
    waiting.start()
    waiting.join(0.2)
    assert waiting.is_alive()  # the lock holds
    assert process.pid
    os.kill(process.pid, signal.SIGKILL)
    process.join()
    waiting.join(60)
    assert [usage.remaining for usage in usages] == [10**6 - 2]


@pytest.mark.release
def test_processes_that_are_killed_lose_no_count_of_others() -> None:
    table = SharedTable()
    workers = 4
    acknowledged = memoryview(mmap.mmap(-1, workers * 8)).cast("Q")

    def count(worker: int) -> None:
        while True:
            table.acquire(key_of(1), MANY)
            acknowledged[worker] += 1

    kills = 12
    for kill in range(kills):
        processes = [forked.Process(target=count, args=(worker,)) for worker in range(workers)]
        for process in processes:
            process.start()
        wanted = sum(acknowledged) + 100 * kill
        eventually(lambda: sum(acknowledged) > wanted)  # noqa: B023
        for process in processes:
            process.kill()
            process.join()
    total = table.windows(key_of(1))[0][0]
    assert sum(acknowledged) > 0
    # The request of a killed process may have been counted, and not been acknowledged.
    assert sum(acknowledged) <= total <= sum(acknowledged) + workers * kills


def test_a_fork_while_a_thread_counts_leaves_the_child_able_to_count() -> None:
    table = SharedTable()
    is_inside = threading.Event()
    may_leave = threading.Event()

    def stay_inside() -> None:
        with table.lock:
            is_inside.set()
            may_leave.wait(10)

    thread = threading.Thread(target=stay_inside)
    thread.start()
    assert is_inside.wait(60)
    process = forked.Process(target=lambda: table.acquire(key_of(2), MANY))
    process.start()
    may_leave.set()
    thread.join()
    process.join(60)
    assert process.exitcode == 0


def test_an_exception_inside_leaves_the_lock_usable() -> None:
    lock = ProcessLock()
    with pytest.raises(ZeroDivisionError), lock:
        _ = 1 // 0
    with lock:
        pass


def test_keys_of_one_bucket_have_counts_of_their_own() -> None:
    table = SharedTable(buckets=1)
    for number in range(16):
        for _ in range(number + 1):
            table.acquire(key_of(number), (Limit(100, 60),))
    for number in range(16):
        (count, _), other = table.windows(key_of(number))
        assert (count, other) == (number + 1, NEVER)


def test_a_full_bucket_forgets_first_whose_windows_end_first() -> None:
    table = SharedTable(buckets=1, clock=lambda: 1000.0)
    for number in range(16):
        # The window of 5 ends first.
        table.keep(key_of(number), 100.0 + (number - 5) ** 2)
    assert table.acquire(key_of(99), (Limit(9, 500), Limit(9, 600))).passed
    assert table.windows(key_of(99)) == ((1, 1500.0), (1, 1600.0))
    for number in set(range(16)) - {5}:
        assert table.is_kept(key_of(number))
    assert table.windows(key_of(5)) == (NEVER, NEVER)


@pytest.mark.release
def test_a_million_clients_take_no_more_memory() -> None:
    table = SharedTable(buckets=4)
    for number in range(5_000):
        assert table.acquire(os.urandom(16), (Limit(1, 60),)).passed, number
    assert len(table._memory) == 4 * 16 * 40


def test_a_lock_whose_holder_was_killed_is_whole_again() -> None:
    lock = ProcessLock()

    def die_with_it() -> None:
        with lock:
            os.kill(os.getpid(), signal.SIGKILL)

    for _ in range(3):
        process = forked.Process(target=die_with_it)
        process.start()
        process.join()
        with lock:
            pass


def test_what_is_forked_later_shares_the_table_of_the_process() -> None:
    key = os.urandom(16)

    def count() -> None:
        PROCESS_TABLE.acquire(key, MANY)

    count()
    assert run_forked(count) == [0]
    assert PROCESS_TABLE.windows(key)[0][0] == 2
