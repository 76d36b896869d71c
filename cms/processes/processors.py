"""Which processors the threads of this process run on.

The interpreter's lock lets one thread of a process run at a time. On several processors the threads
only hand the lock from one to another, which takes longer than the work for a short request. So a
web worker keeps its threads on one processor. What runs beside the lock (child processes, hashes of
passwords) may use them all.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

_THIS_THREAD = 0
_TASKS = Path("/proc/self/task")
_STATISTICS = Path("/proc/stat")
_INTERRUPTS = Path("/proc/interrupts")
_BUSY_COLUMNS = (1, 2, 3, 6, 7, 8)  # user, nice, system, irq, softirq, steal; see proc(5)

_all: frozenset[int] = frozenset()  # those of the process, while its threads are kept on one
_current: int | None = None


def available_processors() -> tuple[int, ...]:
    """Return the numbers of the processors that this process may use; none if none can be chosen.

    Linux alone lets a program choose.
    """
    if not hasattr(os, "sched_getaffinity"):
        return ()
    return tuple(sorted(_all or os.sched_getaffinity(0)))


def keep_on(processor: int) -> None:
    """Keep all threads of this process, and those to come, on one processor."""
    global _all, _current
    _all = frozenset(available_processors())
    _current = processor
    # sched_setaffinity is about one thread, so each thread of the process is asked; new ones
    # inherit it.
    for task in _TASKS.iterdir():
        _restrict(int(task.name), (processor,))


@contextmanager
def all_processors() -> Iterator[None]:
    """Let this thread, and the processes and threads that it starts here, use all processors."""
    if _current is None:
        yield
        return
    _restrict(_THIS_THREAD, _all)
    try:
        yield
    finally:
        _restrict(_THIS_THREAD, (_current,))


def busy_seconds() -> dict[int, float]:
    """Return how long each processor has worked since the system started, for all processes.

    Where the system does not tell, the answer is empty.
    """
    seconds: dict[int, float] = {}
    with suppress(OSError):
        for line in _STATISTICS.read_text().splitlines():
            columns = line.split()
            name = columns[0].removeprefix("cpu")
            if name.isdecimal():
                # In hundredths of a second, nearly everywhere; sysconf knows.
                ticks = sum(int(columns[index]) for index in _BUSY_COLUMNS)
                seconds[int(name)] = ticks / os.sysconf("SC_CLK_TCK")
    return seconds


def device_interrupts() -> dict[int, int]:
    """Return how many interrupts of devices each processor has handled since the system started.

    Where the system does not tell, the answer is empty.
    """
    counts: dict[int, int] = {}
    with suppress(OSError, ValueError):
        header, *lines = _INTERRUPTS.read_text().splitlines()
        processors = [int(name.removeprefix("CPU")) for name in header.split()]
        for line in lines:
            name, *columns = line.split()
            # Those of the processors themselves, such as timers, have names instead of numbers.
            if name.removesuffix(":").isdecimal():
                for processor, count in zip(processors, columns, strict=False):
                    counts[processor] = counts.get(processor, 0) + int(count)
    return counts


def _restrict(thread: int, processors: Iterable[int]) -> None:
    # A thread may have ended, and a processor been taken away: then the system chooses.
    with suppress(OSError):
        os.sched_setaffinity(thread, processors)
