"""A child process that changes images: killed at the limits of time and memory, and nothing of the service with it.

`python -m cms.files.image_worker BYTES` reads pickled jobs from its standard input and answers each with a line of
JSON: `format`, or `reason` where it cannot be done, with a `fault` that is for the log. It ends with its
input, and when nothing has come for a while.
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
"""What to read, where to write, what to do, within which limits."""


def main() -> None:
    """Do jobs until nobody asks any more."""
    memory = int(sys.argv[1])
    resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    while select.select([sys.stdin], [], [], IDLE_SECONDS)[0]:
        try:
            job: RenderJob = pickle.load(sys.stdin.buffer)
        except EOFError:
            return
        limits = job[3]
        # The kernel ends this process when its time is up, whatever it is doing and whoever is left to wait for it.
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
