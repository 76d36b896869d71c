"""The child processes that transform images, at most a set number at a time on one machine."""

from __future__ import annotations

import atexit
import contextlib
import fcntl
import json
import logging
import os
import pickle
import select
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from cms.config import Config
from cms.errors import unavailable
from cms.processors import all_processors
from cms.transforms.steps import illegal_transform
from cms.transforms.transform import ImageLimits, Transform

MAX_PIXELS = 100_000_000
# An image takes 4 bytes for each pixel; to turn, blur or convert it takes a second and a third
# copy.
MEMORY = 2**29 + 12 * MAX_PIXELS
START_SECONDS = 20.0
SLOT_POLL_SECONDS = 0.02
FAILURE_SECONDS = 60.0
FAILURES_KEPT = 1000
_INHERITED_VARIABLES = ("PATH", "LD_LIBRARY_PATH", "PYTHONHOME", "TMPDIR", "LANG")


log = logging.getLogger("cms")


class ImagePool:
    """The child processes of one process, started when they are needed; `close` ends them.

    The limit of those that work at the same time holds for the machine: each locks one of a few
    files, and the kernel frees the lock when its holder ends.
    """

    def __init__(self, config: Config) -> None:
        self._folder = config.data_dir / "transforms"
        self._max_concurrent = config.assets_transform_max_concurrent
        self._limits = ImageLimits(
            MAX_PIXELS,
            config.assets_transform_image_max_dimension,
            config.assets_transform_timeout.total_seconds(),
        )
        self._idle: list[subprocess.Popen[bytes]] = []
        self._lock = threading.Lock()
        self._failures = _RecentFailures()
        # Otherwise the children would outlive a worker that ends.
        atexit.register(self.close)

    def render(self, source: Path, target: Path, transform: Transform, *, name: str) -> str:
        """Write the transformed image to `target` and return its format.

        `name` identifies the image and the transform. A transform that failed is not tried again
        for a minute: otherwise all who wait for it would fail one after the other, each after the
        full time. Raises `Refused`: ILLEGAL_ASSET_TRANSFORMATION for a transform that is not
        possible within the limits, SERVICE_UNAVAILABLE when all slots stay taken.
        """
        if reason := self._failures.get(name):
            raise illegal_transform(reason)
        with self._slot():
            answer = self._answer(pickle.dumps((source, target, transform, self._limits)))
        if "fault" in answer:
            log.error("unexpected fault in a transform\n%s", answer["fault"])
        if "reason" in answer:
            self._failures.put(name, answer["reason"])
            raise illegal_transform(answer["reason"])
        return answer["format"]

    def close(self) -> None:
        """End the child processes that wait for work."""
        atexit.unregister(self.close)
        with self._lock:
            idle = self._idle
            self._idle = []
        for child in idle:
            _end_child(child)

    @contextmanager
    def _slot(self) -> Iterator[None]:
        """Hold one of the machine's slots for transforms."""
        self._folder.mkdir(parents=True, exist_ok=True)
        deadline = time.monotonic() + self._limits.max_seconds
        while (descriptor := self._take_slot()) is None:
            if time.monotonic() > deadline:
                raise unavailable(
                    "assets", "Too many images are being transformed; try again later"
                )
            time.sleep(SLOT_POLL_SECONDS)
        try:
            yield
        finally:
            os.close(descriptor)

    def _take_slot(self) -> int | None:
        """Return the locked descriptor of a free slot's file, or None."""
        # Close-on-exec: a child that inherited the descriptor would keep the lock.
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC
        for number in range(self._max_concurrent):
            descriptor = os.open(self._folder / str(number), flags, 0o600)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return descriptor
            except BlockingIOError:
                os.close(descriptor)
        return None

    def _answer(self, job: bytes) -> dict[str, str]:
        """Have a child do a job; a child that has ended for want of jobs is replaced."""
        while True:
            child = self._child()
            answer = _exchange(child, job, timeout=self._limits.max_seconds + START_SECONDS)
            if answer is not None:
                with self._lock:
                    self._idle.append(child)
                return answer
            _end_child(child)
            # A child that had no job for a while ends with 0: then another one is started.
            if child.returncode:
                seconds = f"{self._limits.max_seconds:g}"
                return {
                    "reason": f"The image needs more than {seconds} seconds, or too much memory"
                }

    def _child(self) -> subprocess.Popen[bytes]:
        with self._lock:
            if self._idle:
                return self._idle.pop()
        # Not the service's own variables: they hold secrets, and images may come from anybody.
        environment = {
            name: os.environ[name] for name in _INHERITED_VARIABLES if name in os.environ
        }
        environment["PYTHONPATH"] = os.pathsep.join(path or os.getcwd() for path in sys.path)
        with all_processors():
            return subprocess.Popen(
                [sys.executable, "-m", "cms.files.image_worker", str(MEMORY)],
                env=environment,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                start_new_session=True,  # Ctrl-C is for the service, which ends its children
            )


class _RecentFailures:
    """The transforms that failed within the last minute, each with its end and its reason."""

    def __init__(self) -> None:
        self._failures: dict[str, tuple[float, str]] = {}
        self._lock = threading.Lock()

    def get(self, name: str) -> str | None:
        end, reason = self._failures.get(name, (0.0, ""))
        return reason if time.monotonic() < end else None

    def put(self, name: str, reason: str) -> None:
        with self._lock:
            self._failures.pop(name, None)
            # The first one ends first, because all last equally long.
            while len(self._failures) >= FAILURES_KEPT:
                del self._failures[next(iter(self._failures))]
            self._failures[name] = time.monotonic() + FAILURE_SECONDS, reason


def _exchange(
    child: subprocess.Popen[bytes], job: bytes, *, timeout: float
) -> dict[str, str] | None:
    """Return a child's answer; None when the child has ended or does not answer in time."""
    assert child.stdin and child.stdout
    try:
        child.stdin.write(job)
        child.stdin.flush()
    except BrokenPipeError:
        return None
    poll = select.poll()
    poll.register(child.stdout, select.POLLIN)
    if not poll.poll(timeout * 1000):
        child.kill()
        return None
    line = child.stdout.readline()
    answer: dict[str, str] | None = json.loads(line) if line else None
    return answer


def _end_child(child: subprocess.Popen[bytes]) -> None:
    assert child.stdin and child.stdout
    with contextlib.suppress(BrokenPipeError):
        child.stdin.close()
    child.stdout.close()
    try:
        child.wait(1)
    except subprocess.TimeoutExpired:
        child.kill()
        child.wait()
