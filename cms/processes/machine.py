"""The memory and the cores that this process may use: in a container often less than there is.

The interpreter's lock lets one thread of a process run at a time. On several processors the threads
only hand the lock from one to another, which takes longer than the work for a short request. So a
web worker may keep its threads on one processor. What runs beside the lock (child processes, hashes
of passwords) uses them all.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

MEBIBYTE = 2**20
GIBIBYTE = 2**30

USUAL_MEMORY = GIBIBYTE
"""The size of the memory that is assumed if it cannot be found out."""

CGROUPS = Path("/sys/fs/cgroup")
OWN_CGROUPS = Path("/proc/self/cgroup")

MEMORY_FILES = ("memory.max", "memory.limit_in_bytes")
"""The limit of a cgroup of version 2, and of version 1."""

_THIS_THREAD = 0

_all: frozenset[int] = frozenset()  # those of the process, while its threads are kept on one


@dataclass(frozen=True, slots=True)
class Machine:
    """The memory in bytes and the cores that this process may use."""

    memory: int
    cores: int


def present_machine(cgroups: Path = CGROUPS, own_cgroups: Path = OWN_CGROUPS) -> Machine:
    """Return the memory and cores that this process may use: in a container often not all."""
    memory = _physical_memory()
    cores = _available_cores()
    for folder in _cgroup_folders(cgroups, own_cgroups):
        memory = min([memory, *_memory_limits(folder)])
        cores = min([cores, *_core_limits(folder)])
    return Machine(memory, cores)


def _physical_memory() -> int:
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError):  # a system that does not tell
        return USUAL_MEMORY


def _available_cores() -> int:
    return len(available_processors()) or os.cpu_count() or 1


def _cgroup_folders(cgroups: Path, own_cgroups: Path) -> Iterator[Path]:
    """Yield the folders of this process's cgroups and of all above them, whose limits count too."""
    try:
        lines = own_cgroups.read_text().splitlines()
    except OSError:  # another system than Linux
        return
    for line in lines:
        _, controllers, path = line.split(":", 2)
        # Version 2 has no controllers here; version 1 has a folder for each, or for several.
        root = cgroups / controllers if controllers else cgroups
        folder = Path(f"{root}{path}")
        # Inside of a container its own cgroup is the root, whatever it is called outside.
        for each in (folder, *folder.parents):
            if each.is_relative_to(root):
                yield each


def _memory_limits(folder: Path) -> Iterator[int]:
    for name in MEMORY_FILES:
        # "max" is no limit.
        with suppress(OSError, ValueError):
            yield int((folder / name).read_text())


def _core_limits(folder: Path) -> Iterator[int]:
    """Yield the cores that the quota of processor time comes to, as of a container with `cpus`."""
    with suppress(OSError, ValueError):
        quota, period = (folder / "cpu.max").read_text().split()
        yield max(math.ceil(int(quota) / int(period)), 1)
    with suppress(OSError, ValueError, ZeroDivisionError):
        limit = int((folder / "cpu.cfs_quota_us").read_text())
        if limit > 0:  # -1 is no limit
            yield max(math.ceil(limit / int((folder / "cpu.cfs_period_us").read_text())), 1)


def available_processors() -> tuple[int, ...]:
    """Return the numbers of the processors that this process may use; none if none can be chosen.

    Linux alone lets a program choose, and not in every sandbox.
    """
    if not hasattr(os, "sched_getaffinity"):
        return ()
    try:
        return tuple(sorted(_all or os.sched_getaffinity(_THIS_THREAD)))
    except OSError:
        return ()


def keep_on(processor: int) -> None:
    """Keep this thread, and all that it will start, on one processor, if the system allows it."""
    global _all
    available = frozenset(available_processors())
    with suppress(OSError):
        os.sched_setaffinity(_THIS_THREAD, (processor,))
        _all = available


@contextmanager
def all_processors() -> Iterator[None]:
    """Let this thread, and the processes and threads that it starts here, use all processors."""
    if not _all:
        yield
        return
    before = os.sched_getaffinity(_THIS_THREAD)
    # The system refuses if it has taken all of them away: then the thread stays where it is.
    with suppress(OSError):
        os.sched_setaffinity(_THIS_THREAD, _all)
    try:
        yield
    finally:
        with suppress(OSError):
            os.sched_setaffinity(_THIS_THREAD, before)
