"""The files in which processes count: taken over, shared, of other versions, cut off, forked."""

from __future__ import annotations

import multiprocessing
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from cms.metrics import metrics
from cms.metrics.exposition import exposition
from cms.metrics.families import POOL_WAIT, REQUESTS, STATEMENTS
from cms.metrics.metrics import Metrics, ProcessValues
from tests.metrics_text import Samples, samples_of, value


def samples_in(folder: Path) -> Samples:
    metrics = Metrics(folder)
    try:
        return samples_of(exposition(metrics, []).decode())
    finally:
        metrics.close()


def total(folder: Path, name: str = "cms_statements_total", **labels: str) -> float:
    return value(samples_in(folder), name, **labels)


def count(folder: Path, times: int = 1) -> Metrics:
    metrics = Metrics(folder)
    count_on(metrics, times)
    return metrics


def count_on(metrics: Metrics, times: int) -> None:
    for _ in range(times):
        metrics.count_statement()


def test_processes_are_added_up(tmp_path: Path) -> None:
    metrics = [count(tmp_path, 2), count(tmp_path, 3)]
    assert total(tmp_path) == 5
    for one in metrics:
        one.close()


def test_the_next_process_counts_on_where_a_dead_one_ended(tmp_path: Path) -> None:
    for number in range(5):
        metrics = count(tmp_path, 2)
        metrics.count_request("GET", f"/route/{number}", "200", 0.1)
        metrics.close()
    assert total(tmp_path) == 10
    assert total(tmp_path, "cms_requests_total", method="GET", route="/route/0", status="200") == 1
    assert len(list(tmp_path.glob("*.names"))) == 1


KILLED = """
import os, signal, sys
from pathlib import Path
from cms.metrics.metrics import Metrics
metrics = Metrics(Path(sys.argv[1]))
for _ in range(7):
    metrics.count_statement()
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_what_a_killed_process_has_counted_stays(tmp_path: Path) -> None:
    assert subprocess.run([sys.executable, "-c", KILLED, str(tmp_path)], check=False).returncode < 0
    assert total(tmp_path) == 7
    metrics = count(tmp_path)
    assert total(tmp_path) == 8
    metrics.close()


def test_half_a_line_of_a_killed_process_is_dropped(tmp_path: Path) -> None:
    count(tmp_path, 3).close()
    (names,) = tmp_path.glob("*.names")
    names.write_bytes(names.read_bytes() + b'["cms_req')
    assert total(tmp_path) == 3
    metrics = count(tmp_path)
    metrics.count_request("GET", "/a", "200", 0.1)
    assert total(tmp_path) == 4
    assert total(tmp_path, "cms_requests_total", method="GET", route="/a", status="200") == 1


def test_a_damaged_file_is_begun_anew(tmp_path: Path) -> None:
    count(tmp_path, 3).close()
    (names,) = tmp_path.glob("*.names")
    names.write_bytes(names.read_bytes() + b"\0\0\0\n")
    assert total(tmp_path) == 0
    metrics = count(tmp_path)
    assert total(tmp_path) == 1
    metrics.close()


def test_files_of_another_version_are_begun_anew(tmp_path: Path) -> None:
    count(tmp_path, 3).close()
    (names,) = tmp_path.glob("*.names")
    names.write_bytes(b"another layout\n" + names.read_bytes().partition(b"\n")[2])
    assert total(tmp_path) == 0
    metrics = count(tmp_path)
    metrics.count_pool_wait(0.2)
    assert total(tmp_path) == 1


def test_a_forked_child_has_files_of_its_own(tmp_path: Path) -> None:
    metrics = count(tmp_path, 2)
    child = multiprocessing.get_context("fork").Process(target=metrics.count_statement)
    child.start()
    child.join()
    metrics.count_statement()
    assert total(tmp_path) == 4
    assert len(list(tmp_path.glob("*.names"))) == 2


def test_threads_lose_no_count(tmp_path: Path) -> None:
    metrics = Metrics(tmp_path)
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        threads = [threading.Thread(target=count_on, args=(metrics, 5_000)) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(before)
    assert total(tmp_path) == 20_000


def test_a_thread_that_counts_after_the_end_changes_nothing_of_the_next(tmp_path: Path) -> None:
    before = ProcessValues.in_folder(tmp_path)
    before.add(STATEMENTS)
    before.close()
    metrics = count(tmp_path)
    metrics.count_request("GET", "/a", "200", 0.1)
    before.add(STATEMENTS)
    before.add(REQUESTS, ("GET", "/b", "200"))
    assert total(tmp_path) == 2
    assert total(tmp_path, "cms_requests_total", method="GET", route="/a", status="200") == 1


def test_a_histogram_adds_up_its_buckets(tmp_path: Path) -> None:
    values = ProcessValues.in_folder(tmp_path)
    for seconds in (0.0, 0.0001, 0.0002, 3.0, 100.0):
        values.observe(POOL_WAIT, seconds)
    samples = samples_in(tmp_path)
    buckets = {
        dict(labels)["le"]: number
        for (name, labels), number in samples.items()
        if name == "cms_pool_wait_seconds_bucket"
    }
    assert buckets["0.0001"] == 2  # a bound belongs to its bucket
    assert buckets["0.001"] == buckets["2.5"] == 3
    assert buckets["5.0"] == 4
    assert buckets["+Inf"] == value(samples, "cms_pool_wait_seconds_count") == 5
    assert value(samples, "cms_pool_wait_seconds_sum") == pytest.approx(103.0003)


def test_series_beyond_the_room_are_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(metrics, "CAPACITY", 3)
    values = ProcessValues.in_folder(tmp_path)
    for route in ("/a", "/b", "/c", "/d", "/a"):
        values.add(REQUESTS, ("GET", route, "200"))
    values.add(STATEMENTS)
    counts = {
        route: total(tmp_path, "cms_requests_total", method="GET", route=route, status="200")
        for route in ("/a", "/b", "/c", "/d")
    }
    assert counts == {"/a": 2, "/b": 1, "/c": 0, "/d": 0}


def test_without_a_folder_a_process_counts_for_itself(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    metrics = count(tmp_path / "file" / "metrics", 2)
    assert value(samples_of(exposition(metrics, []).decode()), "cms_statements_total") == 2


def test_what_has_no_labels_is_there_before_its_first_event(tmp_path: Path) -> None:
    samples = samples_in(tmp_path)
    names = {name for name, labels in samples if not labels}
    assert {
        "cms_statements_total",
        "cms_plan_cache_hits_total",
        "cms_plan_cache_misses_total",
        "cms_transforms_total",
        "cms_flow_runs_total",
        "cms_pool_wait_seconds_count",
    } <= names


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="no /proc here")
def test_memory_is_that_of_live_processes_only(tmp_path: Path) -> None:
    count(tmp_path).close()
    samples = samples_in(tmp_path)
    own = int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    assert 0.5 * own < value(samples, "cms_process_memory_bytes") < 1.5 * own
