"""Child processes that do one job at a time, each a line or more in and a line out.

A pool of the standard library or of pebble would be shorter, but its processes start with the
service's environment, and the service unpickles their answers: an attacker who breaks an image
decoder or the engine of scripts could read the secrets, or run code in the service itself.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import select
import subprocess
import sys
import threading

from cms.processes.forks import register_for_forks
from cms.processes.machine import all_processors

# Not the service's other variables: they hold secrets, and jobs may come from anybody.
_INHERITED_VARIABLES = ("PATH", "LD_LIBRARY_PATH", "PYTHONHOME", "TMPDIR", "LANG")
_END_SECONDS = 1.0
IDLE_SECONDS = 60.0
"""How long a child waits for its next job."""


class ChildEnded(Exception):
    """A child ended in the middle of a job; `status` is that of its process."""

    def __init__(self, status: int) -> None:
        super().__init__(f"exit status {status}")
        self.status = status


class ChildProcess:
    """A running child: the module of a name, which gets the arguments."""

    def __init__(self, module: str, *arguments: str) -> None:
        with all_processors():
            self._process = subprocess.Popen(
                [sys.executable, "-m", module, *arguments],
                env=_environment(),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                start_new_session=True,  # Ctrl-C is for the service, which ends its children
            )

    def run(self, job: bytes, *, max_seconds: float) -> bytes | None:
        """Return the line that answers a job.

        None when the child has ended, or is killed for its time.
        """
        process = self._process
        assert process.stdin and process.stdout
        try:
            process.stdin.write(job)
            process.stdin.flush()
        except BrokenPipeError:
            return None
        poll = select.poll()
        poll.register(process.stdout, select.POLLIN)
        # A child writes its line at once, so that the first byte stands for all of it.
        if not poll.poll(max_seconds * 1000):
            process.kill()
            return None
        # An empty line is the end of the output: the child has ended.
        return process.stdout.readline() or None

    def forget(self) -> None:
        """Leave the child to the process that has started it, from which this one was forked."""
        process = self._process
        assert process.stdin and process.stdout
        # The pipes remain open in the other process.
        process.stdin.close()
        process.stdout.close()
        # Otherwise it would be waited for here.
        process.returncode = 0

    def end(self) -> int:
        """End the child, and return its exit status: 0 if it ended by itself, between jobs."""
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


class ChildProcesses:
    """The children of one kind, started when they are needed; `close` ends them."""

    def __init__(self, module: str, *arguments: str) -> None:
        self._module = module
        self._arguments = arguments
        self._idle: list[ChildProcess] = []
        self._lock = threading.Lock()
        # Otherwise the children would outlive a worker that ends.
        atexit.register(self.close)
        register_for_forks(self)

    def run(self, job: bytes, *, max_seconds: float) -> bytes:
        """Have a child do a job, and return the line that it answers.

        A child that has ended between two jobs is replaced. Raises `ChildEnded` for one that ends
        in the middle of this job, or is killed for its time.
        """
        while True:
            process = self._idle_or_new()
            answer = process.run(job, max_seconds=max_seconds)
            if answer is not None:
                with self._lock:
                    self._idle.append(process)
                return answer
            status = process.end()
            # Only a child that ends between two jobs ends with 0: the next one does this job.
            if status != 0:
                raise ChildEnded(status)

    def close(self) -> None:
        """End the children that wait for work."""
        atexit.unregister(self.close)
        with self._lock:
            idle = self._idle
            self._idle = []
        for process in idle:
            process.end()

    def reset_after_fork(self) -> None:
        """Begin anew in a process that was just forked: the children are those of its parent."""
        idle = self._idle
        self._idle = []
        # A thread of the parent may hold it.
        self._lock = threading.Lock()
        for process in idle:
            process.forget()

    def _idle_or_new(self) -> ChildProcess:
        with self._lock:
            if self._idle:
                return self._idle.pop()
        return ChildProcess(self._module, *self._arguments)


def _environment() -> dict[str, str]:
    environment = {name: os.environ[name] for name in _INHERITED_VARIABLES if name in os.environ}
    # As the parent found its modules; an empty entry of sys.path is the folder in which it was
    # started.
    environment["PYTHONPATH"] = os.pathsep.join(path or os.getcwd() for path in sys.path)
    return environment


def waits_for_job() -> bool:
    """Wait for the next job, or the end of the input; false where neither comes for a while."""
    readable, _, _ = select.select([sys.stdin], [], [], IDLE_SECONDS)
    return bool(readable)
