"""A child process that transforms images, so that limits of time and memory end it and not the
service.

`python -m cms.files.image_worker BYTES` reads pickled jobs from its standard input. It answers each
with a line of JSON: `format`, or `reason` for an image that cannot be transformed, with a `fault`
for the log. It ends with its input, and when no job has come for a while.
"""

from __future__ import annotations

import json
import pickle
import resource
import select
import signal
import sys
import traceback
from pathlib import Path

from cms.files.imaging import ImageError, render
from cms.transforms.transform import ImageLimits, Transform

IDLE_SECONDS = 60.0

RenderJob = tuple[Path, Path, Transform, ImageLimits]
"""The image to read, the file to write, the transform, and the limits."""


def main() -> None:
    """Do jobs until no more come."""
    memory = int(sys.argv[1])
    resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    while select.select([sys.stdin], [], [], IDLE_SECONDS)[0]:
        try:
            job: RenderJob = pickle.load(sys.stdin.buffer)
        except EOFError:
            return
        *_, limits = job
        # The kernel ends this process when its time is up, even if its parent no longer waits.
        signal.setitimer(signal.ITIMER_REAL, limits.max_seconds)
        answer = _run(job)
        signal.setitimer(signal.ITIMER_REAL, 0)
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()


def _run(job: RenderJob) -> dict[str, str]:
    try:
        return {"format": render(*job)}
    except ImageError as fault:
        return {"reason": str(fault)}
    except Exception:
        return {"reason": "It cannot be done with this image", "fault": traceback.format_exc()}


if __name__ == "__main__":
    main()
