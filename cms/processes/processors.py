"""Which processors the threads of this process run on.

The interpreter's lock lets one thread of a process run at a time. On several processors the threads
only hand the lock from one to another, which takes longer than the work for a short request. So a
web worker keeps its threads on one processor. What runs beside the lock (child processes, hashes of
passwords) may use them all.
"""

from __future__ import annotations

import os
import threading
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
_free_threads: set[int] = set()  # those that use all processors for a while


def available_processors() -> tuple[int, ...]:
    """Return the numbers of the processors that this process may use; none if none can be chosen.

    Linux alone lets a program choose, and not in every sandbox.
    """
    if not hasattr(os, "sched_getaffinity"):
        return ()
    try:
        own = os.sched_getaffinity(_THIS_THREAD)
    except OSError:
        return ()
    # The system gives a thread others if it takes away the one on which the thread was kept.
    return tuple(sorted(_all if own == {_current} else own))


def keep_on(processor: int) -> bool:
    """Keep all threads of this process, and those to come, on one processor.

    False if the system refuses: the processor was taken away, or a sandbox forbids to choose one.
    """
    global _all, _current
    available = frozenset(available_processors())
    if not _restrict(_THIS_THREAD, (processor,)):
        _all -= {processor}
        return False
    _all = available
    _current = processor
    # sched_setaffinity is about one thread, so each thread of the process is asked; new ones
    # inherit it. A thread that was not yet asked may have started another one meanwhile.
    asked: set[int] = set()
    while others := _threads() - asked:
        for thread in others:
            # Asked for each, because one may become free meanwhile.
            if thread not in _free_threads:
                _restrict(thread, (processor,))
        asked |= others
    return True


@contextmanager
def all_processors() -> Iterator[None]:
    """Let this thread, and the processes and threads that it starts here, use all processors."""
    thread = threading.get_native_id()
    if _current is None or thread in _free_threads:
        yield
        return
    _free_threads.add(thread)
    _restrict(_THIS_THREAD, _all)
    try:
        yield
    finally:
        _free_threads.discard(thread)
        _return_to_current()


def _return_to_current() -> None:
    """Keep this thread where the others are, also if another thread moves them at this moment."""
    processor = None
    while processor != _current:
        processor = _current
        assert processor is not None
        _restrict(_THIS_THREAD, (processor,))


def _threads() -> set[int]:
    try:
        return {int(task.name) for task in _TASKS.iterdir()}
    except OSError:
        # Without /proc Python's own threads are known.
        return {thread.native_id for thread in threading.enumerate() if thread.native_id}


def busy_seconds() -> dict[int, float]:
    """Return how long each processor has worked since the system started, for all processes.

    Where the system does not tell, the answer is empty.
    """
    seconds: dict[int, float] = {}
    with suppress(OSError, ValueError, IndexError):
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


def least_interrupted() -> list[int]:
    """Return the available processors, first those that devices interrupt least.

    Where the disk interrupts, each write that is done wakes a process of PostgreSQL, which then
    takes the processor from a worker.
    """
    interrupts = device_interrupts()
    return sorted(available_processors(), key=lambda number: interrupts.get(number, 0))


def _restrict(thread: int, processors: Iterable[int]) -> bool:
    """Restrict a thread, unless it has ended or the system refuses; tell whether it was done."""
    try:
        os.sched_setaffinity(thread, processors)
    except OSError:
        return False
    return True
