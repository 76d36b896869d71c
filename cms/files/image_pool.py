"""The child processes for images, at most a set number at a time on one machine."""

from __future__ import annotations

import json
import logging
import pickle
import threading
import time
from pathlib import Path
from typing import Any, NamedTuple

from cms.config import Config
from cms.errors import insufficient_storage, unavailable
from cms.files.image_job import ImageInfo, ReadJob, RenderAnswer, RenderJob
from cms.metrics.metrics import Metrics
from cms.processes.child_processes import ChildEnded, ChildProcesses
from cms.processes.slots import MachineSlots, NoFreeSlot
from cms.transforms.steps import illegal_transform
from cms.transforms.transform import ImageLimits, Transform

MAX_PIXELS = 100_000_000
# An image takes 4 bytes for each pixel; to turn, blur or convert it takes a second and a third
# copy.
# 512 MiB beside the pixels: for Python, the libraries and the decoders.
MAX_MEMORY = 2**29 + 12 * MAX_PIXELS
START_SECONDS = 20.0
FAILURE_SECONDS = 60.0
MAX_FAILURES = 1000

log = logging.getLogger("cms")


class ImagePool:
    """The child processes of one process, started when they are needed; `close` ends them."""

    def __init__(self, config: Config, metrics: Metrics) -> None:
        max_concurrent = config.assets_transform_max_concurrent
        self._slots = MachineSlots(config.data_dir / "transforms", max_concurrent)
        # Of their own: an upload does not wait for the transforms of others.
        self._read_slots = MachineSlots(config.data_dir / "image-reads", max_concurrent)
        self._limits = ImageLimits(
            MAX_PIXELS,
            config.assets_transform_image_max_dimension,
            config.assets_transform_timeout.total_seconds(),
        )
        # Child processes, because decoders are C code that reads files of anybody: a crash or an
        # endless loop ends only the child.
        self._children = ChildProcesses("cms.files.image_worker", str(MAX_MEMORY))
        self._failures = _RecentFailures()
        self._metrics = metrics

    def read(self, source: Path) -> ImageInfo:
        """Return the facts about an image; they are empty if the limits do not let it be read.

        Raises `Refused` SERVICE_UNAVAILABLE when all slots stay taken.
        """
        answer = self._run(ReadJob(source, self._limits), self._read_slots)
        if answer is None:
            log.info("an image cannot be read within the limits of time and memory")
            return ImageInfo()
        return ImageInfo(**answer)

    def render(self, source: Path, target: Path, transform: Transform, *, name: str) -> str:
        """Write the transformed image to `target` and return its format.

        `name` identifies the image and the transform. A transform that failed is not tried again
        for a minute: otherwise all who wait for it would fail one after the other, each after the
        full time. Raises `Refused`: ILLEGAL_ASSET_TRANSFORMATION for a transform that is not
        possible within the limits, SERVICE_UNAVAILABLE when all slots stay taken.
        """
        recent_reason = self._failures.reason_of(name)
        if recent_reason is not None:
            raise illegal_transform(recent_reason)
        answer = self._rendered(RenderJob(source, target, transform, self._limits))
        if answer.full_disk:
            raise insufficient_storage("service")
        if answer.fault:
            log.error("unexpected fault in a transform\n%s", answer.fault)
        if answer.reason:
            self._failures.add(name, answer.reason)
            raise illegal_transform(answer.reason)
        self._metrics.count_transform()
        return answer.format

    def close(self) -> None:
        """End the child processes that wait for work."""
        self._children.close()

    def _rendered(self, job: RenderJob) -> RenderAnswer:
        answer = self._run(job, self._slots)
        if answer is None:
            seconds = f"{self._limits.max_seconds:g}"
            reason = f"The image needs more than {seconds} seconds, or too much memory"
            return RenderAnswer(reason=reason)
        return RenderAnswer(**answer)

    def _run(self, job: ReadJob | RenderJob, slots: MachineSlots) -> dict[str, Any] | None:
        """Return the answer of a child, or None where its limits ended it."""
        # The child counts the time of its job itself, and may have to start first.
        max_seconds = self._limits.max_seconds + START_SECONDS
        try:
            with slots.take(max_seconds=self._limits.max_seconds):
                answer = self._children.run(pickle.dumps(job), max_seconds=max_seconds)
        except NoFreeSlot:
            raise unavailable(
                "assets", "Too many images are being read or transformed; try again later"
            ) from None
        except ChildEnded:
            return None
        # JSON and not pickle on the way back: the child has decoded a file of anybody's.
        parsed: dict[str, Any] = json.loads(answer)
        return parsed


class _Failure(NamedTuple):
    """Why a transform failed, and until when it is not tried again, by the monotonic clock."""

    reason: str
    end: float


class _RecentFailures:
    """The transforms that failed within the last minute."""

    def __init__(self) -> None:
        self._failures: dict[str, _Failure] = {}
        self._lock = threading.Lock()

    def reason_of(self, name: str) -> str | None:
        """Return why a transform failed within the last minute, None if it did not."""
        failure = self._failures.get(name)
        if failure is None or time.monotonic() >= failure.end:
            return None
        return failure.reason

    def add(self, name: str, reason: str) -> None:
        # Reading needs no lock: a lookup of a dict is one step under the lock of the interpreter.
        with self._lock:
            # Removed and added again, so that the dict stays in the order of the ends.
            self._failures.pop(name, None)
            # The first one ends first, because all last equally long.
            while len(self._failures) >= MAX_FAILURES:
                del self._failures[next(iter(self._failures))]
            self._failures[name] = _Failure(reason, time.monotonic() + FAILURE_SECONDS)
