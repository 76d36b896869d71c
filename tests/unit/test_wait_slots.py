"""Which threads of a process may be busy with what takes long."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from queue import Queue

import pytest

from cms.processes.slots import NoFreeSlot, WaitSlots

TIMEOUT_SECONDS = 20.0
Take = Callable[[], AbstractContextManager[None]]


@pytest.fixture(autouse=True)
def short_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cms.processes.slots.MAX_SECONDS_OF_OTHERS", 0.01)


def taken(stack: ExitStack, take: Take, attempts: int) -> int:
    """Return how many of so many attempts get a slot, all of which are held."""
    count = 0
    for _ in range(attempts):
        try:
            stack.enter_context(take())
        except NoFreeSlot:
            continue
        count += 1
    return count


@contextmanager
def waiting(take: Take, outcomes: Queue[str]) -> Iterator[None]:
    """Have another thread wait for a slot."""

    def wait() -> None:
        try:
            with take():
                outcomes.put("taken")
        except NoFreeSlot:
            outcomes.put("refused")

    thread = threading.Thread(target=wait)
    thread.start()
    try:
        yield
    finally:
        thread.join(TIMEOUT_SECONDS)


@pytest.mark.parametrize(
    ("threads", "half", "busy"),
    [(1, 1, 1), (2, 1, 1), (3, 1, 2), (4, 2, 3), (5, 2, 4), (8, 4, 6), (16, 8, 12)],
)
def test_each_kind_takes_half_and_both_together_leave_a_quarter(
    threads: int, half: int, busy: int
) -> None:
    slots = WaitSlots(threads)
    for first, second in ((slots.take, slots.take_for_hash), (slots.take_for_hash, slots.take)):
        with ExitStack() as stack:
            # One attempt at a time: nobody queues while a slot of the kind is free.
            assert taken(stack, first, half) == half
            assert taken(stack, second, half) == busy - half
        # All have been given back.
        with ExitStack() as stack:
            assert taken(stack, first, half) == half


def test_hashes_take_half_at_most() -> None:
    slots = WaitSlots(8)
    with ExitStack() as stack:
        assert taken(stack, slots.take_for_hash, 8) == 4


def test_who_waits_for_a_slot_gets_the_next_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cms.processes.slots.MAX_SECONDS", TIMEOUT_SECONDS)
    slots = WaitSlots(4)
    outcomes: Queue[str] = Queue()
    with ExitStack() as holders:
        assert taken(holders, slots.take, 2) == 2
        with waiting(slots.take, outcomes):
            until(lambda: slots._queued == 1)
            # A quarter of the threads waits; the others are soon free again.
            with pytest.raises(NoFreeSlot), slots.take():
                pass
            holders.close()
    assert outcomes.get(timeout=TIMEOUT_SECONDS) == "taken"


def test_who_waits_for_a_slot_makes_room_for_a_hash(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cms.processes.slots.MAX_SECONDS", TIMEOUT_SECONDS)
    monkeypatch.setattr("cms.processes.slots.MAX_SECONDS_OF_OTHERS", TIMEOUT_SECONDS / 4)
    slots = WaitSlots(4)
    outcomes: Queue[str] = Queue()
    with ExitStack() as holders:
        assert taken(holders, slots.take, 2) == 2
        with waiting(slots.take, outcomes):
            until(lambda: slots._queued == 1)
            with slots.take_for_hash():
                assert outcomes.get(timeout=TIMEOUT_SECONDS) == "refused"


def test_who_waits_for_a_slot_stays_where_another_thread_is_free(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("cms.processes.slots.MAX_SECONDS", TIMEOUT_SECONDS)
    slots = WaitSlots(8)
    outcomes: Queue[str] = Queue()
    with ExitStack() as holders:
        assert taken(holders, slots.take, 4) == 4
        with waiting(slots.take, outcomes):
            until(lambda: slots._queued == 1)
            with slots.take_for_hash():
                assert slots._queued == 1
            holders.close()
    assert outcomes.get(timeout=TIMEOUT_SECONDS) == "taken"


def until(happened: Callable[[], bool]) -> None:
    ticks = threading.Event()
    for _ in range(int(TIMEOUT_SECONDS * 100)):
        if happened():
            return
        ticks.wait(0.01)
    raise AssertionError("It has not happened.")
