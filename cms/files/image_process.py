"""One child process that transforms images (`cms/files/image_worker.py`), as its parent sees it.

A pool of the standard library or of pebble would be shorter, but its processes start with the
service's environment, and the service unpickles what they answer: whoever breaks an image decoder
would read the secrets, or run code in the service itself.
"""

from __future__ import annotations

import contextlib
import json
import os
import pickle
import select
import subprocess
import sys

from cms.files.image_job import RenderAnswer, RenderJob
from cms.processors import all_processors

# Not the service's other variables: they hold secrets, and images may come from anybody.
_INHERITED_VARIABLES = ("PATH", "LD_LIBRARY_PATH", "PYTHONHOME", "TMPDIR", "LANG")
_END_SECONDS = 1.0


class ImageProcess:
    """A running child, which takes `max_memory` bytes at most and does one job at a time."""

    def __init__(self, max_memory: int) -> None:
        with all_processors():
            self._process = subprocess.Popen(
                [sys.executable, "-m", "cms.files.image_worker", str(max_memory)],
                env=_environment(),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                start_new_session=True,  # Ctrl-C is for the service, which ends its children
            )

    def run(self, job: RenderJob, *, max_seconds: float) -> RenderAnswer | None:
        """Return the answer to a job; None when the child has ended, or is killed for its time."""
        process = self._process
        assert process.stdin and process.stdout
        try:
            process.stdin.write(pickle.dumps(job))
            process.stdin.flush()
        except BrokenPipeError:
            return None
        poll = select.poll()
        poll.register(process.stdout, select.POLLIN)
        if not poll.poll(max_seconds * 1000):
            process.kill()
            return None
        line = process.stdout.readline()
        return RenderAnswer(**json.loads(line)) if line else None

    def end(self) -> int:
        """End the child, and return its exit status: 0 if it ended by itself, for want of jobs."""
        process = self._process
        assert process.stdin and process.stdout
        with contextlib.suppress(BrokenPipeError):
            process.stdin.close()
        process.stdout.close()
        try:
            return process.wait(_END_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            return process.wait()


def _environment() -> dict[str, str]:
    environment = {name: os.environ[name] for name in _INHERITED_VARIABLES if name in os.environ}
    environment["PYTHONPATH"] = os.pathsep.join(path or os.getcwd() for path in sys.path)
    return environment
