"""The child processes that run scripts, at most a set number at a time on one machine."""

from __future__ import annotations

import json
import math
import signal
from dataclasses import dataclass

from cms import jsontext
from cms.config import Config
from cms.errors import unavailable
from cms.processes.child_processes import ChildEnded, ChildProcesses
from cms.processes.slots import MachineSlots, NoFreeSlot

HEAP_BYTES = 32 * 2**20
MAX_CONCURRENT = 4
"""Scripts that run at a time on one machine: each is a process of 70 MB at least."""

START_SECONDS = 20.0
"""How much longer than its script a child may take, which may have to start first."""


MIN_SECONDS = 0.01
"""The seconds that a script gets at least, however late its run is."""


@dataclass(frozen=True, slots=True)
class ScriptOutcome:
    """The result of a script, or the value that it has thrown; and its console output."""

    result: object = None
    error: object = None
    has_failed: bool = False
    lines: tuple[str, ...] = ()


class ScriptPool:
    """The child processes of one process, started when they are needed; `close` ends them."""

    def __init__(self, config: Config) -> None:
        self._slots = MachineSlots(config.data_dir / "scripts", MAX_CONCURRENT)
        self._max_seconds = config.flows_run_script_timeout.total_seconds()
        self._children = ChildProcesses("cms.flows.scripts.script_worker", str(HEAP_BYTES))

    def run(self, code: str, data: object, *, max_seconds: float = math.inf) -> ScriptOutcome:
        """Run a script in an isolate of its own and return its outcome.

        `data` is a JSON value. A caller with less time than the setting allows says so. Raises
        `Refused` SERVICE_UNAVAILABLE when all slots stay taken.
        """
        seconds = min(self._max_seconds, max(max_seconds, MIN_SECONDS))
        job = {"code": code, "data": jsontext.dumps(data).decode(), "max_seconds": seconds}
        # As JSON on one line: the child gets no pickles, because it runs code that is not trusted.
        line = json.dumps(job).encode() + b"\n"
        try:
            # Slots of the machine, because several processes have pools of their own.
            with self._slots.take(max_seconds=seconds):
                answer = self._children.run(line, max_seconds=seconds + START_SECONDS)
        except NoFreeSlot:
            raise unavailable("flows", "Too many scripts are running; try again later") from None
        except ChildEnded as ended:
            # The kernel's alarm ends a script for its time; V8 itself ends the process when the
            # system refuses it memory.
            is_late = ended.status in (-signal.SIGALRM, -signal.SIGKILL)
            return _limited("time" if is_late else "memory", seconds)
        return _outcome(answer, seconds)

    def close(self) -> None:
        """End the child processes that wait for work."""
        self._children.close()


def _outcome(line: bytes, seconds: float) -> ScriptOutcome:
    answer = json.loads(line)
    lines = tuple(answer["lines"])
    if "limit" in answer:
        return _limited(answer["limit"], seconds, lines)
    try:
        # The outcome is JSON as a text inside the JSON of the line; a script can make it anything.
        outcome = jsontext.loads(answer["outcome"])
    except ValueError:
        # Text that PostgreSQL cannot hold: U+0000, or halves of characters.
        return _failed("The result is no text that can be stored", lines)
    match outcome:
        case {"error": error}:
            return ScriptOutcome(error=error, has_failed=True, lines=lines)
        case {"result": result}:
            return ScriptOutcome(result, lines=lines)
    return _failed("The result is not what the script has returned", lines)


def _limited(limit: str, seconds: float, lines: tuple[str, ...] = ()) -> ScriptOutcome:
    message = f"The script needs more than {HEAP_BYTES // 2**20} MB of memory"
    if limit == "time":
        message = f"The script takes more than {seconds:.3g} seconds"
    return _failed(message, lines, name="LimitExceeded")


def _failed(message: str, lines: tuple[str, ...], *, name: str = "Error") -> ScriptOutcome:
    error = {"name": name, "message": message}
    return ScriptOutcome(error=error, has_failed=True, lines=lines)
