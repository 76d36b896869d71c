"""A child process that runs scripts of flows in V8: their limits end it, and not the service.

`python -m cms.flows.scripts.script_worker BYTES` reads jobs, each a line of JSON, from its standard
input, and answers each with a line of JSON. It ends with its input, when no job has come for a
while, and after a script that has met a limit: V8 does not give all of its memory back.
"""

from __future__ import annotations

import json
import os
import resource
import signal
import sys
import time
from importlib import resources
from pathlib import Path
from typing import NamedTuple

from py_mini_racer import (
    JSEvalException,
    JSOOMException,
    JSPromise,
    JSPromiseError,
    JSTimeoutException,
    MiniRacer,
)

from cms.processes.child_processes import waits_for_job

MAX_LINES = 200
"""Lines of console output; what follows is left out."""

MAX_LINE_LENGTH = 4000
MAX_RESULT_LENGTH = 2**22
"""Characters of a result as JSON."""

MAX_ANSWER_LENGTH = MAX_RESULT_LENGTH + 100
"""The same with what tells results from errors."""

END_SECONDS = 1.0
"""How long after its time a script is ended that does not let itself be interrupted."""

BUFFER_FACTOR = 3
"""How many times the limit of the heap all memory of the process may grow: buffers are outside of
the heap, and V8 collects garbage into another part of it."""

_PROCESS = Path("/proc/self")
_SETUP = resources.files("cms.flows.scripts").joinpath("isolate.js").read_text("utf-8")


class _ScriptJob(NamedTuple):
    """JavaScript that exports a function, the JSON of what it gets, and its limit in seconds."""

    code: str
    data: str
    max_seconds: float


def main() -> None:
    """Run scripts until no more come, or one meets a limit."""
    heap_bytes = int(sys.argv[1])
    MiniRacer().close()  # opens every file that V8 needs
    _limit_process(heap_bytes)
    # A script that has met a limit may have left the engine in any state: the process ends, and the
    # next job gets a new one.
    has_met_limit = False
    while not has_met_limit and waits_for_job():
        line = sys.stdin.buffer.readline()
        if not line:
            return
        job = _ScriptJob(**json.loads(line))
        # The kernel ends this process when V8 cannot interrupt a script, as in a loop of promises.
        signal.setitimer(signal.ITIMER_REAL, job.max_seconds + END_SECONDS)
        answer = _run(job, heap_bytes)
        has_met_limit = "limit" in answer
        signal.setitimer(signal.ITIMER_REAL, 0)
        sys.stdout.buffer.write(json.dumps(answer).encode() + b"\n")
        sys.stdout.buffer.flush()


def _limit_process(heap_bytes: int) -> None:
    """Take from this process what no script needs, in case one breaks out of V8."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    # No file can grow, so that nothing can be written to the disk.
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
    if not _PROCESS.exists():  # as on macOS
        return
    # Not the address space: V8 reserves a terabyte of it.
    limit = _data_bytes() + BUFFER_FACTOR * heap_bytes
    resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))
    # Nothing more can be opened, neither files nor sockets. An event loop of Python opens three.
    open_files = len(os.listdir(_PROCESS / "fd"))
    resource.setrlimit(resource.RLIMIT_NOFILE, (open_files + 3, open_files + 3))


def _data_bytes() -> int:
    status = (_PROCESS / "status").read_text("ascii")
    # `VmData:   424 kB` is one of its lines.
    _, _, size = status.partition("\nVmData:")
    return int(size.split()[0]) * 1024


def _run(job: _ScriptJob, heap_bytes: int) -> dict[str, object]:
    deadline = time.monotonic() + job.max_seconds
    # An isolate of its own for each script: nothing of one is seen by the next.
    with MiniRacer() as engine:
        engine.set_hard_memory_limit(heap_bytes)
        engine.eval(_setup_script())
        try:
            # As JSON texts, which JavaScript reads as strings: code and data cannot leave their
            # quotes.
            call = f"isolate.run({json.dumps(job.code)}, {json.dumps(job.data)})"
            promise = engine.eval(call, timeout_sec=job.max_seconds)
            assert isinstance(promise, JSPromise)
            # Scripts may have replaced what promises do, and so answer with anything.
            answer = promise.get(timeout=max(deadline - time.monotonic(), 0.001))
            outcome = answer if isinstance(answer, str) else ""
            limit = None
        except JSTimeoutException:
            limit = "time"
        except JSOOMException:
            limit = "memory"
        except (JSEvalException, JSPromiseError) as error:
            outcome = json.dumps({"error": {"name": "Error", "message": str(error)[:1000]}})
            limit = None
        # Also of a script that has failed: its output is what tells why.
        lines = _lines(engine)
    if limit is not None:
        return {"limit": limit, "lines": lines}
    # As a text: a line end of the script's would make two answers of it.
    return {"outcome": outcome[:MAX_ANSWER_LENGTH], "lines": lines}


def _setup_script() -> str:
    script = _SETUP.replace("MAX_LINES", str(MAX_LINES))
    script = script.replace("MAX_LINE_LENGTH", str(MAX_LINE_LENGTH))
    return script.replace("MAX_RESULT_LENGTH", str(MAX_RESULT_LENGTH))


def _lines(engine: MiniRacer) -> list[str]:
    """Return the console output; nothing if the isolate no longer answers."""
    try:
        lines = json.loads(str(engine.eval("isolate.lines()", timeout_sec=END_SECONDS / 2)))
    except (JSEvalException, ValueError):
        lines = None
    # The script may have put anything there.
    if not isinstance(lines, list):
        return []
    return [_storable(str(line)[:MAX_LINE_LENGTH]) for line in lines[:MAX_LINES]]


def _storable(text: str) -> str:
    """Return a text without what PostgreSQL does not store: U+0000, and halves of characters."""
    return text.replace("\0", "").encode("utf-8", "replace").decode()


if __name__ == "__main__":
    main()
