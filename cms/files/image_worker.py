"""A child process that reads and transforms images: limits end it, not the service.

`python -m cms.files.image_worker BYTES` reads pickled jobs from its standard input, and answers
each with a line of JSON. It ends with its input, and when no job has come for a while.
"""

from __future__ import annotations

import json
import pickle
import resource
import signal
import sys
import traceback
from dataclasses import asdict

from cms.errors import FULL_DISK_ERRORS
from cms.files.image_info import image_info_of
from cms.files.image_job import ImageError, ImageInfo, ReadJob, RenderAnswer, RenderJob
from cms.files.image_rendering import render
from cms.processes.child_processes import waits_for_job


def main() -> None:
    """Do jobs until no more come."""
    max_memory = int(sys.argv[1])
    # An allocation beyond it raises MemoryError here, instead of taking memory from the service.
    resource.setrlimit(resource.RLIMIT_AS, (max_memory, max_memory))
    # A process that the limits end must not leave its memory on the disk.
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    while waits_for_job():
        try:
            # The parent is the service itself, so that its pickles can be trusted.
            job: ReadJob | RenderJob = pickle.load(sys.stdin.buffer)
        except EOFError:
            return
        # The kernel ends this process when its time is up, even if its parent no longer waits.
        signal.setitimer(signal.ITIMER_REAL, job.limits.max_seconds)
        answer = _answer(job)
        signal.setitimer(signal.ITIMER_REAL, 0)
        sys.stdout.write(json.dumps(asdict(answer)) + "\n")
        sys.stdout.flush()


def _answer(job: ReadJob | RenderJob) -> ImageInfo | RenderAnswer:
    if isinstance(job, ReadJob):
        return _read(job)
    return _rendered(job)


def _read(job: ReadJob) -> ImageInfo:
    try:
        return image_info_of(job.source)
    except Exception:  # a broken image makes Pillow raise any exception
        return ImageInfo()


def _rendered(job: RenderJob) -> RenderAnswer:
    try:
        return RenderAnswer(format=render(job))
    except ImageError as error:
        return RenderAnswer(reason=str(error))
    except Exception as error:
        if isinstance(error, OSError) and error.errno in FULL_DISK_ERRORS:
            return RenderAnswer(full_disk=True)
        reason = "It cannot be done with this image"
        return RenderAnswer(reason=reason, fault=traceback.format_exc())


if __name__ == "__main__":
    main()
