"""Which processors the threads of a process run on; each test in a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest

from cms.processes import machine
from cms.processes.machine import present_machine
from cms.web import worker_startup

AVAILABLE = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else {0}

several_processors = pytest.mark.skipif(
    len(AVAILABLE) < 2, reason="there is one processor only, or none can be chosen"
)

KEPT_ON_ONE = """
import os, sys, threading
from cms.hashing import passwords
from cms.processes import machine

def shown():
    return sorted(os.sched_getaffinity(0))

def in_a_thread(work):
    answers = []
    thread = threading.Thread(target=lambda: answers.append(work()))
    thread.start()
    thread.join()
    return answers[0]

available = shown()
machine.keep_on(available[-1])
"""


def run(script: str) -> None:
    """Run a script in a process whose threads are kept on one of several processors."""
    subprocess.run([sys.executable, "-c", KEPT_ON_ONE + script], check=True, timeout=60)


@several_processors
def test_threads_to_come_stay_on_one_processor() -> None:
    run("""
assert shown() == [available[-1]]
assert in_a_thread(shown) == [available[-1]]
assert machine.available_processors() == tuple(available)
""")


@several_processors
def test_a_part_of_the_work_may_use_all_processors() -> None:
    run("""
import subprocess
show = "import os; print(len(os.sched_getaffinity(0)))"
with machine.all_processors():
    assert shown() == available
    assert in_a_thread(shown) == available
    assert int(subprocess.check_output([sys.executable, "-c", show])) == len(available)
assert shown() == [available[-1]]
assert int(subprocess.check_output([sys.executable, "-c", show])) == 1
""")


@several_processors
def test_passwords_are_hashed_on_all_processors() -> None:
    run("""
class Hasher:
    def hash(self, password):
        return shown()

passwords._hasher = lambda parameters: Hasher()
passwords._verify = lambda stored, password: shown() == available
ours = passwords.Passwords(passwords.HashParameters())
assert ours.hashed("secret") == available
assert ours.verifies("stored", "secret")
assert shown() == [available[-1]]
""")


@pytest.mark.release
@several_processors
def test_images_are_transformed_on_all_processors() -> None:
    run("""
from cms.processes.child_processes import ChildProcess

child = ChildProcess("cms.files.image_worker", str(2**30))
try:
    assert sorted(os.sched_getaffinity(child._process.pid)) == available
finally:
    child.end()
""")


@several_processors
def test_a_thread_that_already_uses_all_processors_goes_on_to_do_so() -> None:
    run("""
with machine.all_processors():
    with machine.all_processors():
        pass
    assert shown() == available
""")


def test_where_the_system_refuses_a_processor_none_counts_as_taken(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(os, "sched_setaffinity", Mock(side_effect=PermissionError), raising=False)
    machine.keep_on(0)
    assert machine.available_processors() == tuple(sorted(AVAILABLE))
    with machine.all_processors():
        pass


def test_systems_without_a_choice_of_processors_are_left_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delattr(os, "sched_getaffinity", raising=False)
    expect_no_choice()


def test_a_sandbox_that_tells_no_processors_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", Mock(side_effect=PermissionError), raising=False)
    expect_no_choice()


def expect_no_choice() -> None:
    assert Service(2).processors == [None, None]
    assert present_machine().cores >= 1


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
        worker: Any = SimpleNamespace(processor=None)
        worker_startup.choose_processor(self, worker)
        self._age += 1
        self.WORKERS[self._age] = worker

    def end(self, index: int) -> None:
        del self.WORKERS[sorted(self.WORKERS)[index]]

    @property
    def processors(self) -> list[int | None]:
        return [self.WORKERS[age].processor for age in sorted(self.WORKERS)]


@pytest.fixture
def three_processors(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker_startup, "available_processors", lambda: (0, 1, 4))


@pytest.mark.usefixtures("three_processors")
def test_as_many_workers_as_processors_get_one_each_and_other_numbers_none() -> None:
    assert Service(3).processors == [0, 1, 4]
    assert Service(2).processors == [None, None]
    assert Service(4).processors == [None] * 4


@pytest.mark.usefixtures("three_processors")
def test_a_worker_that_replaces_another_one_gets_its_processor() -> None:
    service = Service(3)
    service.end(1)
    service.fill()
    assert service.processors == [0, 4, 1]


@pytest.mark.usefixtures("three_processors")
def test_a_reload_gives_the_new_workers_the_same_processors() -> None:
    service = Service(3)
    for _ in range(3):
        service.spawn()
    for _ in range(3):
        service.end(0)
    assert service.processors == [0, 1, 4]


@pytest.mark.usefixtures("three_processors")
def test_workers_of_another_class_have_no_processor() -> None:
    service = Service(3)
    service.WORKERS = {1: SimpleNamespace()}
    service.spawn()
    assert service.WORKERS[4].processor == 0
