"""Which processors the threads of a process run on; each test in a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from unittest.mock import Mock

import pytest

from cms.processes import processors
from cms.processes.machine import present_machine
from cms.web import affinity
from cms.web.affinity import Affinity, better_processor
from cms.web.worker_table import WorkerTable

AVAILABLE = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else {0}

several_processors = pytest.mark.skipif(
    len(AVAILABLE) < 2, reason="there is one processor only, or none can be chosen"
)

KEPT_ON_ONE = """
import os, sys, threading
from pathlib import Path
from cms.hashing import passwords
from cms.processes import processors
from cms.web import affinity
from cms.web.affinity import Affinity
from cms.web.worker_table import WorkerTable

affinity.MIN_SECONDS = affinity.MAX_SECONDS = 0.0

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


def test_the_processor_that_devices_interrupt_least_is_the_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "interrupts"
    file.write_text(INTERRUPTS)
    monkeypatch.setattr(processors, "_INTERRUPTS", file)
    monkeypatch.setattr(processors, "available_processors", lambda: (0, 1, 2, 3))
    assert processors.device_interrupts() == {0: 1, 1: 13981821, 3: 9}
    assert processors.least_interrupted() == [2, 0, 3, 1]


def test_without_counts_of_interrupts_the_first_processor_is_chosen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(processors, "_INTERRUPTS", tmp_path / "missing")
    monkeypatch.setattr(processors, "available_processors", lambda: (4, 5))
    assert processors.least_interrupted() == [4, 5]


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

# Since each look, others have used the first processor all the time, and no other one at all.
busy = count(0.0, 1000.0)
processors.busy_seconds = lambda: {number: 0.0 for number in available} | {available[0]: next(busy)}
kept = Affinity(available[0], WorkerTable().new_entry())
assert shown() == in_a_thread(shown) == [available[0]]
kept.review()
assert shown() == in_a_thread(shown) == [available[1]]
kept.review()
assert shown() == [available[1]]
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
    assert better_processor(0, (0, 1, 2), shares=shares) == better


@pytest.mark.parametrize(
    ("shares", "workers", "better"),
    [
        ({0: 0.9, 1: 0.1}, [1], None),
        ({0: 0.9, 1: 0.1}, [0, 1], 1),
        ({0: 0.5, 1: 0.5}, [0], 1),
        ({0: 0.2, 1: 0.9, 2: 0.8}, [0, 1], 2),
        ({0: 0.9, 1: 0.1, 2: 0.4}, [1], 2),
        ({0: 0.0, 1: 0.5}, [0, 0, 1, 1], None),
    ],
    ids=[
        "one each",
        "as many there",
        "two here",
        "a free one",
        "not beside another",
        "more workers than processors",
    ],
)
def test_workers_of_one_service_share_no_processor_beside_a_free_one(
    shares: dict[int, float], workers: list[int], better: int | None
) -> None:
    assert better_processor(0, tuple(shares), shares=shares, workers=workers) == better


@several_processors
def test_a_worker_leaves_the_processor_of_another_worker() -> None:
    run("""
processors.busy_seconds = lambda: dict.fromkeys(available, 0.0)
table = WorkerTable()
other = table.new_entry()
other.publish_processor(available[0])

kept = Affinity(available[0], table.new_entry())
kept.review()
assert shown() == [available[0]], "the other one does not serve yet"
other.publish(1)
kept.review()
assert shown() != [available[0]]
assert other.processors_of_others() == [], "this one does not serve yet"
""")


@pytest.mark.parametrize(
    ("workers", "better"), [([0], 1), ([1], None), ([], None)], ids=["two here", "apart", "alone"]
)
def test_workers_part_also_where_the_system_does_not_tell_how_busy_processors_are(
    workers: list[int], better: int | None
) -> None:
    assert better_processor(0, (0, 1), shares={}, workers=workers) == better


def test_a_processor_that_the_worker_may_not_use_any_more_is_left() -> None:
    assert better_processor(0, (1, 2), shares={1: 0.8, 2: 0.3}, workers=[]) == 2


@several_processors
def test_a_worker_whose_processor_is_taken_away_goes_to_another_one() -> None:
    run("""
entry = WorkerTable().new_entry()
kept = Affinity(available[0], entry)
for thread in os.listdir("/proc/self/task"):
    os.sched_setaffinity(int(thread), available[1:])
kept.review()
assert [entry.processor] == shown() == in_a_thread(shown) != [available[0]]
assert processors.available_processors() == tuple(available[1:])
""")


@several_processors
def test_where_the_system_refuses_a_processor_none_counts_as_taken() -> None:
    run("""
def refuse(thread, processors):
    raise PermissionError

first, second = WorkerTable().new_entry(), WorkerTable().new_entry()
os.sched_setaffinity(0, available)
os.sched_setaffinity, allowed = refuse, os.sched_setaffinity
kept = Affinity(available[0], first)
kept.review()
assert first.processor is None
assert shown() == available
os.sched_setaffinity = allowed
kept.review()
assert [first.processor] == shown(), "the next review tries again"
""")


@several_processors
def test_without_proc_the_threads_of_python_are_kept() -> None:
    run("""
processors._TASKS = processors._STATISTICS = processors._INTERRUPTS = Path("/nowhere")
gate, answers = threading.Event(), []
thread = threading.Thread(target=lambda: (gate.wait(), answers.append(shown())))
thread.start()
Affinity(available[0], WorkerTable().new_entry()).review()
gate.set()
thread.join()
assert answers == [shown()] == [[available[0]]]
""")


@several_processors
def test_a_thread_that_starts_meanwhile_is_kept_as_well() -> None:
    run("""
gate, answers = threading.Event(), []
thread = threading.Thread(target=lambda: (gate.wait(), answers.append(shown())))
thread.start()
own = threading.get_native_id()
looks = iter([{own}, {own, thread.native_id}, {own, thread.native_id}])
processors._threads = lambda: next(looks)
processors.keep_on(available[0])
gate.set()
thread.join()
assert answers == [[available[0]]]
""")


@several_processors
def test_work_on_all_processors_goes_on_while_the_worker_moves() -> None:
    run("""
inside, moved, answers = threading.Event(), threading.Event(), []

def work():
    with processors.all_processors():
        with processors.all_processors():
            inside.set()
            moved.wait()
        answers.append(shown())
    answers.append(shown())

thread = threading.Thread(target=work)
thread.start()
inside.wait()
processors.keep_on(available[0])
moved.set()
thread.join()
assert answers == [available, [available[0]]]
""")


@pytest.mark.parametrize("text", ["", "\n", "cpu0 1 2\n", "cpu0 a b c d e f g h\n"])
def test_statistics_in_another_form_tell_nothing(
    text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "statistics"
    file.write_text(text)
    monkeypatch.setattr(processors, "_STATISTICS", file)
    assert processors.busy_seconds() == {}


@pytest.fixture
def immediate_reviews(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(affinity, "MIN_SECONDS", 0.0)
    monkeypatch.setattr(affinity, "MAX_SECONDS", 0.0)


@pytest.mark.usefixtures("immediate_reviews")
def test_systems_without_a_choice_of_processors_are_left_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delattr(os, "sched_getaffinity", raising=False)
    monkeypatch.delattr(os, "sched_setaffinity", raising=False)
    expect_no_choice()


@pytest.mark.usefixtures("immediate_reviews")
def test_a_sandbox_that_tells_no_processors_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", Mock(side_effect=PermissionError), raising=False)
    expect_no_choice()


@pytest.mark.usefixtures("immediate_reviews")
def test_where_there_is_one_processor_only_no_thread_is_kept(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(processors, "available_processors", lambda: (3,))
    monkeypatch.setattr(processors, "keep_on", Mock(side_effect=AssertionError))
    Affinity(3, WorkerTable().new_entry()).review()


def expect_no_choice() -> None:
    entry = WorkerTable().new_entry()
    Affinity(None, entry).review()
    assert entry.processor is None
    assert processors.least_interrupted() == []
    assert present_machine().cores >= 1
