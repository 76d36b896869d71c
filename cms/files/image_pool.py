"""Where images are changed: a few child processes, as many at a time as one machine is to run."""

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
from cms.transforms.steps import illegal_transform
from cms.transforms.transform import ImageLimits, Transform

MOST_PIXELS = 100_000_000
# An image takes 4 bytes for each pixel; turning, blurring or converting it needs a second and a third copy.
MEMORY = 2**29 + 12 * MOST_PIXELS
START_SECONDS = 20.0
SLOT_POLL_SECONDS = 0.02
FAILURE_SECONDS = 60.0
FAILURES_KEPT = 1000
_INHERITED_VARIABLES = ("PATH", "LD_LIBRARY_PATH", "PYTHONHOME", "TMPDIR", "LANG")


log = logging.getLogger("cms")


class ImagePool:
    """The child processes of one process, made when they are needed; `close` ends them.

    How many work at the same time is counted over the machine, with locks on files that end with their holder.
    """

    def __init__(self, config: Config) -> None:
        self._folder = config.data_dir / "transforms"
        self._max_concurrent = config.assets_transform_max_concurrent
        self._limits = ImageLimits(
            MOST_PIXELS,
            config.assets_transform_image_max_dimension,
            config.assets_transform_timeout.total_seconds(),
        )
        self._idle: list[subprocess.Popen[bytes]] = []
        self._lock = threading.Lock()
        self._failures = _RecentFailures()
        atexit.register(
            self.close
        )  # else an ended worker leaves them to whoever adopts its children

    def render(self, source: Path, target: Path, transform: Transform, *, name: str) -> str:
        """Write the transformed image to `target` and return its format.

        `name` stands for this image transformed like this: what could not be done is not tried again for a minute,
        or those who wait for it would all wait for as long as it may take. Raises `Refused`:
        ILLEGAL_ASSET_TRANSFORMATION where it cannot be done within the limits, SERVICE_UNAVAILABLE when all places
        stay taken.
        """
        if known := self._failures.get(name):
            raise illegal_transform(known)
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
            idle, self._idle = self._idle, []
        for child in idle:
            _end_child(child)

    @contextmanager
    def _slot(self) -> Iterator[None]:
        """Hold one of the machine's places for a transform."""
        self._folder.mkdir(parents=True, exist_ok=True)
        end = time.monotonic() + self._limits.max_seconds
        while (taken := self._take_slot()) is None:
            if time.monotonic() > end:
                raise unavailable(
                    "assets", "Too many images are being transformed; try again later"
                )
            time.sleep(SLOT_POLL_SECONDS)
        try:
            yield
        finally:
            os.close(taken)

    def _take_slot(self) -> int | None:
        for number in range(self._max_concurrent):
            descriptor = os.open(
                self._folder / str(number), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600
            )
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return descriptor
            except BlockingIOError:
                os.close(descriptor)
        return None

    def _answer(self, job: bytes) -> dict[str, str]:
        """Have a child do a job; one that ended because nothing came is replaced."""
        while True:
            child = self._child()
            answer = _exchange(child, job, timeout=self._limits.max_seconds + START_SECONDS)
            if answer is not None:
                with self._lock:
                    self._idle.append(child)
                return answer
            _end_child(child)
            if child.returncode:
                return {
                    "reason": f"The image needs more than {self._limits.max_seconds:g} seconds, or too much memory"
                }

    def _child(self) -> subprocess.Popen[bytes]:
        with self._lock:
            if self._idle:
                return self._idle.pop()
        # Without the service's own variables: they hold secrets, and what reads images from anywhere needs none.
        inherited = {name: os.environ[name] for name in _INHERITED_VARIABLES if name in os.environ}
        return subprocess.Popen(
            [sys.executable, "-m", "cms.files.image_worker", str(MEMORY)],
            env=inherited
            | {"PYTHONPATH": os.pathsep.join(path or os.getcwd() for path in sys.path)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,  # Ctrl-C is for the service, which ends its children
        )


class _RecentFailures:
    """What could not be done lately, with the reason."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[float, str]] = {}
        self._lock = threading.Lock()

    def get(self, name: str) -> str | None:
        end, reason = self._known.get(name, (0.0, ""))
        return reason if time.monotonic() < end else None

    def put(self, name: str, reason: str) -> None:
        with self._lock:
            self._known.pop(name, None)
            while len(self._known) >= FAILURES_KEPT:
                del self._known[
                    next(iter(self._known))
                ]  # the one that ends first: all last equally long
            self._known[name] = time.monotonic() + FAILURE_SECONDS, reason


def _exchange(
    child: subprocess.Popen[bytes], job: bytes, *, timeout: float
) -> dict[str, str] | None:
    """Return a child's answer, None when it has ended or does not answer."""
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
    found: dict[str, str] | None = json.loads(line) if line else None
    return found


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
