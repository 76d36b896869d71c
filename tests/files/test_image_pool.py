"""The child processes that change images: their limits, their end, and how many there are."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import psutil
import pytest

from cms.config import Config
from cms.errors import Refused
from cms.files import image_pool as pools
from cms.files.image_pool import ImagePool
from cms.metrics.metrics import Metrics
from cms.processes.child_processes import ChildProcesses
from cms.transforms.steps import Blur, Resize
from cms.transforms.transform import Transform
from tests.files.pictures import decoded, quarters
from tests.waiting import eventually

pytestmark = pytest.mark.release

ROOT = Path(__file__).parents[2]
SMALL = Transform((Resize(8, 8),), "webp", 80)

Make = Callable[..., ImagePool]


@pytest.fixture
def make(settings: Config, tmp_path: Path) -> Iterator[Make]:
    pools: list[ImagePool] = []

    def make(**changes: object) -> ImagePool:
        config = replace(settings, data_dir=tmp_path, **changes)  # type: ignore[arg-type]
        pools.append(ImagePool(config, Metrics(config.data_dir / "metrics")))
        return pools[-1]

    yield make
    for pool in pools:
        pool.close()


@pytest.fixture
def source(tmp_path: Path) -> Path:
    quarters((600, 600)).save(tmp_path / "in", "PNG")
    return tmp_path / "in"


def children() -> list[psutil.Process]:
    mine = psutil.Process().children(recursive=True)
    # Ended children of other tests have no command line any more.
    running = [child for child in mine if child.status() != psutil.STATUS_ZOMBIE]
    return [child for child in running if "cms.files.image_worker" in child.cmdline()]


def do(pool: ImagePool, source: Path, name: str, transform: Transform = SMALL) -> str:
    """Render an image to a file of this name beside it."""
    return pool.render(source, source.with_name(name), transform, name=name)


def reason(refusal: pytest.ExceptionInfo[Refused]) -> str:
    return str(refusal.value.problems[0].extensions["reason"])


def test_one_child_does_one_job_after_another_and_ends_with_its_pool(
    make: Make, source: Path
) -> None:
    pool = make()
    before = len(children())
    for name in ("a", "b", "c"):
        assert do(pool, source, name) == "webp"
        assert decoded(source.with_name(name).read_bytes()).size == (8, 8)
    assert len(children()) == before + 1
    pool.close()
    assert len(children()) == before


def test_what_takes_too_long_is_stopped_and_the_next_one_works(
    make: Make, source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pool = make(assets_transform_timeout=timedelta(seconds=3))
    do(pool, source, "a")
    (child,) = children()
    endless = Transform((Resize(6000, 6000), *[Blur(100.0)] * 1000), "png")
    with pytest.raises(Refused) as refusal:
        do(pool, source, "b", endless)
    assert "3 seconds" in reason(refusal)
    assert not child.is_running()
    with monkeypatch.context() as patch:
        patch.setattr(ChildProcesses, "run", lambda *_, **__: pytest.fail("it is tried again"))
        with pytest.raises(Refused):
            do(pool, source, "b", endless)
    assert do(pool, source, "c") == "webp"


def test_what_needs_too_much_memory_is_refused(
    make: Make, source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pools, "MAX_MEMORY", 160 * 2**20)
    pool = make()
    with pytest.raises(Refused) as refusal:
        do(pool, source, "a", Transform((Resize(6000, 6000),), "png"))
    assert "memory" in reason(refusal)
    assert do(pool, source, "b") == "webp"


def test_a_child_that_was_killed_while_it_waited_is_replaced(make: Make, source: Path) -> None:
    pool = make()
    do(pool, source, "a")
    (child,) = children()
    child.send_signal(signal.SIGTERM)
    child.wait(60)
    assert do(pool, source, "b") == "webp"


def test_a_child_has_no_secret_in_its_environment(
    make: Make, source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SECRET", "hunter2")
    do(make(), source, "a")
    assert "hunter2" not in str(children()[-1].environ())


def test_of_too_many_failures_the_oldest_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pools, "MAX_FAILURES", 2)
    failures = pools._RecentFailures()
    for name in ("a", "b", "c", "b", "d"):
        failures.add(name, "too large")
    assert [failures.reason_of(name) for name in ("a", "b", "c", "d")] == [
        None,
        "too large",
        None,
        "too large",
    ]


def test_a_machine_works_on_so_many_at_a_time(
    make: Make, source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pair = [make(assets_transform_max_concurrent=2) for _ in range(2)]
    working: list[int] = []
    seen: list[int] = []
    run = ChildProcesses.run

    def counted(self: ChildProcesses, job: bytes, *, max_seconds: float) -> bytes:
        working.append(1)
        seen.append(len(working))
        result = run(self, job, max_seconds=max_seconds)
        working.pop()
        return result

    def transform(number: int) -> str:
        return do(pair[number % 2], source, str(number))

    monkeypatch.setattr(ChildProcesses, "run", counted)
    with ThreadPoolExecutor(6) as threads:
        assert list(threads.map(transform, range(12))) == ["webp"] * 12
    assert max(seen) == 2


def test_when_all_slots_stay_taken_the_client_is_asked_to_try_again(
    make: Make, source: Path
) -> None:
    busy = make(assets_transform_max_concurrent=1, assets_transform_timeout=timedelta(seconds=2))
    other = make(
        assets_transform_max_concurrent=1, assets_transform_timeout=timedelta(milliseconds=100)
    )
    slow = Transform((Resize(6000, 6000), *[Blur(100.0)] * 5), "png")
    with ThreadPoolExecutor(1) as threads:
        first = threads.submit(do, busy, source, "a", slow)
        eventually(lambda: (source.parent / "transforms" / "0").exists() and children())
        with pytest.raises(Refused) as refusal:
            do(other, source, "b")
        assert refusal.value.problems[0].code == "SERVICE_UNAVAILABLE"
        assert first.exception() is not None


PARENT = """
import sys, time
from dataclasses import replace
from pathlib import Path
from cms.config import load
from cms.files.image_pool import ImagePool
from cms.metrics.metrics import Metrics
from tests.files.test_image_pool import do
folder = Path(sys.argv[1])
config = load({"DATA_DIR": str(folder)}, folder=folder)
do(ImagePool(config, Metrics(folder / "metrics")), folder / "in", "a")
print("ready", flush=True)
sys.stdin.read()
"""


def test_a_child_ends_when_its_parent_is_killed(source: Path) -> None:
    parent = subprocess.Popen(
        [sys.executable, "-c", PARENT, str(source.parent)],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert parent.stdout
    assert parent.stdout.readline() == "ready\n"
    (child,) = psutil.Process(parent.pid).children()
    parent.kill()
    parent.wait()
    parent.stdout.close()
    child.wait(60)
