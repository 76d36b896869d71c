"""The places of web workers, by which they choose their processors."""

from __future__ import annotations

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
        worker: Any = SimpleNamespace(processor_place=-1)
        worker_startup.choose_processor_place(self, worker)
        self._age += 1
        self.WORKERS[self._age] = worker

    def end(self, index: int) -> None:
        del self.WORKERS[sorted(self.WORKERS)[index]]

    @property
    def places(self) -> list[int]:
        return [self.WORKERS[age].processor_place for age in sorted(self.WORKERS)]


@pytest.fixture(autouse=True)
def four_processors(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker_startup, "available_processors", lambda: (0, 1, 4, 5))


def test_workers_take_the_places_in_order_and_then_share_them() -> None:
    assert Service(6).places == [0, 1, 2, 3, 0, 1]


def test_a_worker_that_replaces_another_one_takes_its_place() -> None:
    service = Service(3)
    for _ in range(3):
        service.end(-1)
        service.fill()
        assert service.places == [0, 1, 2]
    service.end(0)
    service.fill()
    assert service.places == [1, 2, 0]


def test_added_workers_take_new_places_and_fewer_keep_different_ones() -> None:
    service = Service(1)
    service.num_workers = 3
    service.fill()
    assert service.places == [0, 1, 2]
    service.num_workers = 2
    service.end(0)
    service.end(0)
    service.fill()
    assert service.places == [2, 0]


@pytest.mark.parametrize("count", [1, 2, 4])
def test_a_reload_gives_the_new_workers_the_same_places(count: int) -> None:
    service = Service(count)
    for _ in range(count):
        service.spawn()
    for _ in range(count):
        service.end(0)
    assert service.places == list(range(count))


def test_where_no_processor_can_be_chosen_all_have_one_place(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(worker_startup, "available_processors", tuple)
    assert Service(2).places == [0, 0]
