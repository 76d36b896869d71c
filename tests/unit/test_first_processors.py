"""The processors on which web workers begin."""

from __future__ import annotations

from itertools import cycle
from types import SimpleNamespace
from typing import Any

import pytest

from cms.web import worker_startup


class Service:
    """An arbiter of gunicorn with its workers, in the order in which they began."""

    def __init__(self, num_workers: int) -> None:
        self.num_workers = num_workers
        self.WORKERS: dict[int, Any] = {}
        self._age = 0
        self.fill()

    def fill(self) -> None:
        while len(self.WORKERS) < self.num_workers:
            self.spawn()

    def spawn(self) -> None:
        worker: Any = SimpleNamespace()
        worker_startup.choose_processor(self, worker)
        worker.processor = worker.first_processor
        self._age += 1
        self.WORKERS[self._age] = worker

    def end(self, index: int) -> None:
        del self.WORKERS[sorted(self.WORKERS)[index]]

    @property
    def processors(self) -> list[int | None]:
        return [self.WORKERS[age].processor for age in sorted(self.WORKERS)]


@pytest.fixture(autouse=True)
def four_processors(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker_startup, "least_interrupted", lambda: [4, 0, 1, 5])


def test_workers_take_the_processors_in_order_and_then_share_them() -> None:
    assert Service(6).processors == [4, 0, 1, 5, 4, 0]


def test_a_worker_that_replaces_another_one_begins_where_that_one_was() -> None:
    service = Service(3)
    for _ in range(3):
        service.end(-1)
        service.fill()
        assert service.processors == [4, 0, 1]
    service.end(0)
    service.fill()
    assert service.processors == [0, 1, 4]


def test_a_worker_that_replaces_another_one_begins_beside_nobody_who_has_moved_there() -> None:
    service = Service(2)
    service.WORKERS[1].processor = 0
    service.end(1)
    service.fill()
    assert service.processors == [0, 4]


def test_added_workers_take_free_processors_and_fewer_keep_different_ones() -> None:
    service = Service(1)
    service.num_workers = 3
    service.fill()
    assert service.processors == [4, 0, 1]
    service.num_workers = 2
    service.end(0)
    service.end(0)
    service.fill()
    assert service.processors == [1, 4]


@pytest.mark.parametrize("count", [1, 2, 4])
def test_a_reload_gives_the_new_workers_the_same_processors(count: int) -> None:
    service = Service(count)
    before = service.processors
    for _ in range(count):
        service.spawn()
    for _ in range(count):
        service.end(0)
    assert service.processors == before


def test_nearly_equal_counts_of_interrupts_give_no_two_workers_one_processor(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    orders = cycle([[0, 1], [1, 0]])
    monkeypatch.setattr(worker_startup, "least_interrupted", lambda: next(orders))
    assert Service(2).processors == [0, 1]
    assert Service(3).processors == [0, 1, 0]


def test_where_no_processor_can_be_chosen_none_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker_startup, "least_interrupted", list)
    assert Service(2).processors == [None, None]


def test_workers_of_another_class_have_no_processor() -> None:
    service = Service(2)
    service.WORKERS = {1: SimpleNamespace()}
    service.spawn()
    assert service.WORKERS[3].processor == 4
