"""Which processors the threads of a process run on; each test in a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from cms.processes import processors
from cms.web.affinity import Affinity, idler_processor

AVAILABLE = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else {0}

several_processors = pytest.mark.skipif(
    len(AVAILABLE) < 2, reason="there is one processor only, or none can be chosen"
)

KEPT_ON_ONE = """
import os, sys, threading
from cms.hashing import passwords
from cms.processes import processors

def shown():
    return sorted(os.sched_getaffinity(0))

def in_a_thread(work):
    answers = []
    thread = threading.Thread(target=lambda: answers.append(work()))
    thread.start()
    thread.join()
    return answers[0]

available = shown()
processors.keep_on(available[-1])
"""


def run(script: str) -> None:
    """Run a script in a process whose threads are kept on one of several processors."""
    subprocess.run([sys.executable, "-c", KEPT_ON_ONE + script], check=True, timeout=60)


INTERRUPTS = """           CPU0       CPU1       CPU3
 24:          1          0          5  IO-APIC   5-edge      ACPI:Ged
 36:          0   13981821          4  PCI-MSIX-0000:00:02.0   1-edge      virtio1-req.0
NMI:        100          0          0   Non-maskable interrupts
LOC:   15767483   16117250   15767483   Local timer interrupts
"""


def test_a_lone_worker_begins_where_devices_interrupt_least(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "interrupts"
    file.write_text(INTERRUPTS)
    monkeypatch.setattr(processors, "_INTERRUPTS", file)
    monkeypatch.setattr(processors, "available_processors", lambda: (0, 1, 2, 3))
    chosen: list[int] = []
    monkeypatch.setattr(processors, "keep_on", chosen.append)
    assert processors.device_interrupts() == {0: 1, 1: 13981821, 3: 9}
    for number in range(5):
        Affinity(number)
    assert chosen == [2, 0, 3, 1, 2]


def test_without_counts_of_interrupts_the_first_processor_is_chosen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(processors, "_INTERRUPTS", tmp_path / "missing")
    monkeypatch.setattr(processors, "available_processors", lambda: (4, 5))
    chosen: list[int] = []
    monkeypatch.setattr(processors, "keep_on", chosen.append)
    Affinity(0)
    assert chosen == [4]


@several_processors
def test_threads_that_run_and_threads_to_come_stay_on_one_processor() -> None:
    run("""
assert shown() == [available[-1]]
assert in_a_thread(shown) == [available[-1]]
assert processors.available_processors() == tuple(available)
""")


@several_processors
def test_threads_that_already_wait_are_kept_there_as_well() -> None:
    run("""
gate, answers = threading.Event(), []
thread = threading.Thread(target=lambda: (gate.wait(), answers.append(shown())))
thread.start()
processors.keep_on(available[0])
gate.set()
thread.join()
assert answers == [[available[0]]]
""")


@several_processors
def test_a_part_of_the_work_may_use_all_processors() -> None:
    run("""
import subprocess
show = "import os; print(len(os.sched_getaffinity(0)))"
with processors.all_processors():
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
def test_a_worker_leaves_a_processor_that_other_programs_occupy() -> None:
    run("""
from itertools import count
from cms.web import affinity

# Since each look, others have used the first processor all the time, and no other one at all.
busy = count(0.0, 1000.0)
processors.busy_seconds = lambda: {number: 0.0 for number in available} | {available[0]: next(busy)}
affinity.MIN_SECONDS = affinity.MAX_SECONDS = 0.0

kept = affinity.Affinity(0)
assert shown() == in_a_thread(shown) == [available[0]]
kept.review()
assert shown() == in_a_thread(shown) == [available[1]]
kept.review()
assert shown() == [available[1]]
""")


@several_processors
def test_workers_with_successive_numbers_are_on_different_processors() -> None:
    run("""
from cms.web.affinity import Affinity

Affinity(1000)
first = shown()
Affinity(1001)
assert len(first) == 1 and first != shown()
""")


@pytest.mark.parametrize(
    ("shares", "better"),
    [
        ({0: 0.9, 1: 0.1}, 1),
        ({0: 0.9, 1: 0.5, 2: 0.2}, 2),
        ({0: 0.3, 1: 0.1}, None),  # little is gained
        ({0: 0.0, 1: 0.9}, None),
        ({1: 0.0}, None),  # nothing is known of this worker's own
        ({}, None),
    ],
)
def test_a_worker_moves_where_others_work_much_less(
    shares: dict[int, float], better: int | None
) -> None:
    assert idler_processor(0, shares) == better
