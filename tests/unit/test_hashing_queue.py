"""Where passwords are hashed: one at a time, and other requests find a thread meanwhile."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from queue import Queue
from typing import TypeVar

import pytest

from cms.errors import Refused
from cms.hashing import hashing_queue
from cms.hashing.hashing_queue import HashingQueue
from cms.processes.slots import WaitSlots
from cms.web.thread_pool import ThreadPool

TIMEOUT_SECONDS = 20.0
T = TypeVar("T")


class WebQueue(HashingQueue):
    """The queue of a web process with so many threads."""

    def __init__(self, threads: int = 4) -> None:
        super().__init__()
        self.wait_slots = WaitSlots(threads)

    def hash(self, work: Callable[[], T]) -> T:
        return self.run(work, self.wait_slots)


@contextmanager
def in_a_thread(work: Callable[[], None]) -> Iterator[None]:
    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield
    finally:
        thread.join(TIMEOUT_SECONDS)


class Hash:
    """A hash that takes until a test ends it."""

    def __init__(self, run: Callable[[Callable[[], str]], str]) -> None:
        self._run = run
        self.begun = threading.Event()
        self.end = threading.Event()
        self.outcomes: Queue[str] = Queue()

    def __call__(self) -> None:
        try:
            self.outcomes.put(self._run(self._hash))
        except Refused as refused:
            self.outcomes.put(refused.problems[0].code)

    def _hash(self) -> str:
        self.begun.set()
        self.end.wait(TIMEOUT_SECONDS)
        return "hashed"

    def outcome(self) -> str:
        return self.outcomes.get(timeout=TIMEOUT_SECONDS)


def test_one_password_is_hashed_at_a_time() -> None:
    queue = WebQueue()
    first = Hash(queue.hash)
    second = Hash(queue.hash)
    with in_a_thread(first):
        assert first.begun.wait(TIMEOUT_SECONDS)
        with in_a_thread(second):
            assert not second.begun.wait(0.1)
            first.end.set()
            assert second.begun.wait(TIMEOUT_SECONDS)
            second.end.set()
    assert first.outcome() == second.outcome() == "hashed"


def test_every_thread_of_the_web_server_answers_other_requests_during_logins() -> None:
    queue = WebQueue(threads=1)
    threads = ThreadPool(1, max_waiting=5, relieve=lambda: None)
    logins = [Hash(queue.hash) for _ in range(4)]
    for login in logins:
        threads.submit(login)
    read = threading.Event()
    threads.submit(read.set)
    assert read.wait(TIMEOUT_SECONDS)
    for login in logins:
        login.end.set()
    assert [login.outcome() for login in logins] == ["hashed"] * 4


def test_only_so_many_may_wait_beside_the_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hashing_queue, "MAX_CALLERS", 2)
    queue = WebQueue()
    threads = ThreadPool(1, max_waiting=5, relieve=lambda: None)
    logins = [Hash(queue.hash) for _ in range(3)]
    for login in logins:
        threads.submit(login)
    assert logins[2].outcome() == "SERVICE_UNAVAILABLE"
    for login in logins[:2]:
        login.end.set()
    assert [login.outcome() for login in logins[:2]] == ["hashed"] * 2


def test_half_of_the_threads_of_another_server_stay_free() -> None:
    queue = WebQueue(threads=4)
    first = Hash(queue.hash)
    others = [Hash(queue.hash), Hash(queue.hash)]
    outcomes: Queue[str] = Queue()
    with ExitStack() as stack:
        stack.enter_context(in_a_thread(first))
        assert first.begun.wait(TIMEOUT_SECONDS)
        for login in others:
            login.outcomes = outcomes
            stack.enter_context(in_a_thread(login))
        # One of them waits for its turn, and the other one finds no room.
        assert outcomes.get(timeout=TIMEOUT_SECONDS) == "SERVICE_UNAVAILABLE"
        for login in (first, *others):
            login.end.set()
    assert first.outcome() == outcomes.get(timeout=TIMEOUT_SECONDS) == "hashed"


def test_whoever_waits_too_long_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hashing_queue, "MAX_SECONDS", 0.05)
    queue = WebQueue()
    first = Hash(queue.hash)
    second = Hash(queue.hash)
    with in_a_thread(first):
        assert first.begun.wait(TIMEOUT_SECONDS)
        second()
        assert second.outcome() == "SERVICE_UNAVAILABLE"
        first.end.set()
    # The refused call has given its room back.
    third = Hash(queue.hash)
    third.end.set()
    third()
    assert third.outcome() == "hashed"


def test_outside_a_web_process_calls_wait_as_long_as_it_takes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(hashing_queue, "MAX_SECONDS", 0.01)
    queue = HashingQueue()
    hashes = [Hash(queue.run) for _ in range(4)]
    with ExitStack() as stack:
        for waiting in hashes:
            stack.enter_context(in_a_thread(waiting))
        hashes[0].begun.wait(0.1)
        for waiting in hashes:
            waiting.end.set()
    assert [waiting.outcome() for waiting in hashes] == ["hashed"] * 4


@pytest.mark.skipif(sys.platform != "linux", reason="threads have no priority of their own")
def test_other_threads_go_first() -> None:
    queue = WebQueue()
    usual = os.getpriority(os.PRIO_PROCESS, 0)
    hashing = queue.hash(lambda: os.getpriority(os.PRIO_PROCESS, threading.get_native_id()))
    assert hashing == min(19, usual + hashing_queue.LOWER_PRIORITY)
    assert os.getpriority(os.PRIO_PROCESS, 0) == usual


def test_what_a_hash_raises_reaches_its_caller() -> None:
    queue = WebQueue()
    with pytest.raises(TimeoutError, match="its own"):
        queue.hash(lambda: raise_timeout("its own"))


def raise_timeout(reason: str) -> None:
    raise TimeoutError(reason)
