"""The pool of the web server: so many threads work at a time, and those
that wait for a client do not count.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from queue import Queue

import pytest

from cms.web.streamed_body import BodyError, StreamedBody
from cms.web.thread_pool import ThreadPool
from tests.waiting import eventually

TIMEOUT_SECONDS = 20.0


def pool(size: int, *, max_waiting: int, relieve: Callable[[], None] = lambda: None) -> ThreadPool:
    return ThreadPool(size, max_waiting=max_waiting, relieve=relieve)


def test_no_more_threads_work_at_a_time_than_there_are_slots() -> None:
    threads = pool(2, max_waiting=5)
    may_end = threading.Event()
    begun: Queue[int] = Queue()

    def work(number: int) -> None:
        begun.put(number)
        may_end.wait(TIMEOUT_SECONDS)

    for number in range(4):
        threads.submit(partial(work, number))
    assert {begun.get(timeout=TIMEOUT_SECONDS) for _ in range(2)} == {0, 1}
    assert begun.empty()
    may_end.set()
    assert {begun.get(timeout=TIMEOUT_SECONDS) for _ in range(2)} == {2, 3}


def test_a_thread_that_waits_for_a_client_lets_another_work() -> None:
    threads = pool(1, max_waiting=3)
    client = threading.Event()
    done: Queue[str] = Queue()

    def slow() -> None:
        with threads.waiting():
            client.wait(TIMEOUT_SECONDS)
        done.put("slow")

    for _ in range(3):
        threads.submit(slow)
    threads.submit(lambda: done.put("quick"))
    assert done.get(timeout=TIMEOUT_SECONDS) == "quick"
    client.set()
    assert [done.get(timeout=TIMEOUT_SECONDS) for _ in range(3)] == ["slow"] * 3


def test_when_too_many_wait_for_clients_somebody_is_asked_to_end_some() -> None:
    client = threading.Event()
    was_asked = threading.Event()
    threads = pool(1, max_waiting=2, relieve=was_asked.set)
    waiting: Queue[None] = Queue()

    def slow() -> None:
        with threads.waiting():
            waiting.put(None)
            client.wait(TIMEOUT_SECONDS)

    for _ in range(2):
        threads.submit(slow)
        waiting.get(timeout=TIMEOUT_SECONDS)
    assert not was_asked.is_set()
    threads.submit(slow)
    assert was_asked.wait(TIMEOUT_SECONDS)
    assert threads.surplus_waiting == 1
    client.set()


def until_idle(threads: ThreadPool) -> None:
    eventually(lambda: not threads.is_busy)


def with_another_thread(threads: ThreadPool) -> None:
    """Leave the pool with one more thread than there are slots, as a login by password does."""
    is_away = threading.Event()
    end = threading.Event()

    def work() -> None:
        with threads.away():
            is_away.set()
            end.wait(TIMEOUT_SECONDS)

    threads.submit(work)
    assert is_away.wait(TIMEOUT_SECONDS)
    end.set()
    until_idle(threads)


def test_work_begins_in_its_order_also_where_there_are_more_threads_than_slots() -> None:
    threads = pool(1, max_waiting=5)
    with_another_thread(threads)
    may_end = threading.Event()
    begun: Queue[int] = Queue()

    def work(number: int) -> None:
        begun.put(number)
        may_end.wait(TIMEOUT_SECONDS)

    for number in range(10):
        threads.submit(partial(work, number))
    # The first two are with the two threads, of which the second one waits for the slot.
    eventually(lambda: threads._slots.is_awaited)
    may_end.set()
    assert [begun.get(timeout=TIMEOUT_SECONDS) for _ in range(10)] == list(range(10))


def test_a_thread_that_yields_its_slot_goes_on_behind_those_that_wait_for_one() -> None:
    threads = pool(1, max_waiting=5)
    with_another_thread(threads)
    may_yield = threading.Event()
    done: Queue[str] = Queue()

    def long_stream() -> None:
        may_yield.wait(TIMEOUT_SECONDS)
        threads.yield_slot()
        done.put("stream")

    threads.submit(long_stream)
    threads.submit(lambda: done.put("short"))
    eventually(lambda: threads._slots.is_awaited)
    may_yield.set()
    assert [done.get(timeout=TIMEOUT_SECONDS) for _ in range(2)] == ["short", "stream"]


@pytest.fixture
def no_more_threads() -> Iterator[Callable[[], None]]:
    """What makes the system refuse to start a thread, until the end of the test."""
    default = threading.stack_size()

    def refuse() -> None:
        threading.stack_size(2**47)  # no address space has room for such a stack

    yield refuse
    threading.stack_size(default)


def test_without_further_threads_those_that_wait_pass_their_slots_on(
    no_more_threads: Callable[[], None],
) -> None:
    client = threading.Event()
    was_asked = threading.Event()
    threads = pool(3, max_waiting=10, relieve=was_asked.set)
    no_more_threads()
    waiting: Queue[None] = Queue()
    done: Queue[str] = Queue()

    def slow() -> None:
        with threads.waiting():
            waiting.put(None)
            client.wait(TIMEOUT_SECONDS)
        done.put("slow")

    threads.submit(slow)
    waiting.get(timeout=TIMEOUT_SECONDS)
    assert not was_asked.is_set()
    threads.submit(slow)
    waiting.get(timeout=TIMEOUT_SECONDS)
    assert was_asked.wait(TIMEOUT_SECONDS)
    assert threads.surplus_waiting == 1
    threads.submit(lambda: done.put("quick"))
    assert done.get(timeout=TIMEOUT_SECONDS) == "quick"
    client.set()
    assert [done.get(timeout=TIMEOUT_SECONDS) for _ in range(2)] == ["slow"] * 2
    until_idle(threads)


def test_a_thread_whose_client_is_there_waits_for_it_no_more_before_it_has_its_turn() -> None:
    client = threading.Event()
    waiting = threading.Event()
    end = threading.Event()
    threads = pool(1, max_waiting=1)

    def slow() -> None:
        with threads.waiting():
            waiting.set()
            client.wait(TIMEOUT_SECONDS)

    threads.submit(slow)
    assert waiting.wait(TIMEOUT_SECONDS)
    begun = threading.Event()

    def busy() -> None:
        begun.set()
        end.wait(2 * TIMEOUT_SECONDS)

    threads.submit(busy)
    assert begun.wait(TIMEOUT_SECONDS)
    before = threads.surplus_waiting
    client.set()
    eventually(lambda: threads.surplus_waiting != before)
    end.set()


def test_one_that_works_for_too_long_hangs_and_one_that_waits_does_not() -> None:
    threads = pool(1, max_waiting=1)
    end = threading.Event()
    begun = threading.Event()

    def wait_for_client() -> None:
        with threads.waiting():
            begun.set()
            end.wait(TIMEOUT_SECONDS)

    threads.submit(wait_for_client)
    assert begun.wait(TIMEOUT_SECONDS)
    assert not threads.is_hung(time.monotonic() + 100, seconds=10)

    def work() -> None:
        end.wait(TIMEOUT_SECONDS)

    threads.submit(work)
    eventually(lambda: threads.is_hung(time.monotonic() + 100, seconds=10))
    end.set()


def body(*pieces: bytes, complete: bool = True) -> StreamedBody:
    body = StreamedBody(
        pool(0, max_waiting=0), on_first_read=lambda: None, resume_reading=lambda: None
    )
    for piece in pieces:
        body.feed(piece)
    if complete:
        body.complete()
    return body


def test_a_body_is_read_in_pieces_of_any_size() -> None:
    assert [body(b"abc", b"def").read(size) for size in (2, 0, 6, -1)] == [
        b"ab",
        b"",
        b"abcdef",
        b"abcdef",
    ]
    whole = body(b"abc", b"def")
    assert [whole.read(4), whole.read(4), whole.read(4)] == [b"abcd", b"ef", b""]
    assert whole.is_read


def test_a_body_is_read_in_lines() -> None:
    assert body(b"a\nb", b"c\n\nd").readlines() == [b"a\n", b"bc\n", b"\n", b"d"]
    assert body(b"abc\n").readline(2) == b"ab"


def test_a_body_that_breaks_off_raises_behind_what_has_come() -> None:
    broken = body(b"abc", complete=False)
    broken.fail("the client is gone")
    assert broken.read(2) == b"ab"
    with pytest.raises(BodyError, match="the client is gone"):
        broken.read(2)
    assert not broken.is_read


def test_a_body_is_asked_for_once_when_it_is_read() -> None:
    paths: list[str] = []
    announced = StreamedBody(
        pool(0, max_waiting=0),
        on_first_read=lambda: paths.append("continue"),
        resume_reading=lambda: None,
    )
    assert paths == []
    announced.read(0)
    announced.read(0)
    assert paths == ["continue"]


def test_a_body_that_has_come_by_itself_is_not_asked_for() -> None:
    paths: list[str] = []
    announced = StreamedBody(
        pool(0, max_waiting=0),
        on_first_read=lambda: paths.append("continue"),
        resume_reading=lambda: None,
    )
    announced.feed(b"abc")
    assert announced.read(1) == b"a"
    assert paths == []
