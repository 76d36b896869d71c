"""The settings of the embedded server that depend on the machine: its memory and its cores.

They are in a file of their own, which includes postgresql.conf: what somebody has set there, or by
ALTER SYSTEM, counts instead.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from cms.embedded.data_folder import DataFolder

MEBIBYTE = 2**20
GIBIBYTE = 2**30

USUAL_MEMORY = GIBIBYTE
"""What is assumed where nothing tells the size of the memory."""

CGROUPS = Path("/sys/fs/cgroup")
OWN_CGROUPS = Path("/proc/self/cgroup")

MEMORY_FILES = ("memory.max", "memory.limit_in_bytes")
"""The limit of a cgroup of version 2, and of version 1."""


@dataclass(frozen=True, slots=True)
class Machine:
    """The memory in bytes and the cores that this process may use."""

    memory: int
    cores: int


def present_machine(cgroups: Path = CGROUPS, own_cgroups: Path = OWN_CGROUPS) -> Machine:
    """Return what this process may use: in a container often less than there is."""
    memory = _physical_memory()
    cores = _available_cores()
    for folder in _cgroup_folders(cgroups, own_cgroups):
        memory = min([memory, *_memory_limits(folder)])
        cores = min([cores, *_core_limits(folder)])
    return Machine(memory, cores)


def machine_settings(machine: Machine) -> dict[str, str]:
    """Return PostgreSQL's settings for a machine on which the service itself runs too.

    So the server takes an eighth of the memory for itself, where a machine of its own would give it
    a quarter. The kernel's cache of its files is in the rest.
    """
    memory = machine.memory
    cores = machine.cores
    return {
        # Each core has a web worker of up to a dozen connections, and 16 workers are usual at most.
        "max_connections": str(max(200, 40 + 15 * min(cores, 32))),
        "shared_buffers": _size(memory // 8, lowest=32 * MEBIBYTE, highest=8 * GIBIBYTE),
        "effective_cache_size": _size(memory // 2, lowest=128 * MEBIBYTE),
        # For each sort and hash of each query: all connections at once must not take everything.
        "work_mem": _size(memory // 512, lowest=4 * MEBIBYTE, highest=64 * MEBIBYTE),
        "maintenance_work_mem": _size(memory // 32, lowest=32 * MEBIBYTE, highest=GIBIBYTE),
        "max_worker_processes": str(max(8, cores)),
        "max_parallel_workers": str(cores),
        # Half of the cores are left to other requests; a single core gains nothing by parallel work.
        "max_parallel_workers_per_gather": str(min(cores // 2, 4)),
    }


def write_settings(data_folder: DataFolder, machine: Machine) -> Path:
    """Write the file of settings that a server starts with, and return it."""
    # Beside the cluster: in there, which belongs to the server's account, a link could lead root
    # elsewhere.
    path = data_folder.home / "postgres.conf"
    lines = [f"{name} = '{value}'\n" for name, value in machine_settings(machine).items()]
    included = _quoted(data_folder.cluster / "postgresql.conf")
    text = (
        "# Written at each start, for the memory and the cores of this machine. Change nothing here:\n"
        "# what postgresql.conf sets, which is included last, counts instead.\n"
        f"{''.join(lines)}include {included}\n"
    )
    content = text.encode("utf-8", "surrogateescape")
    # Mostly it is there already: a full disk must not keep a server from starting again.
    if not path.exists() or path.read_bytes() != content:
        unfinished = path.with_name("postgres.conf.new")
        unfinished.unlink(missing_ok=True)
        unfinished.write_bytes(content)
        unfinished.chmod(0o644)  # for the server's account; there is nothing secret in it
        unfinished.replace(path)
    return path


def _quoted(path: Path) -> str:
    """Return a path as a value of PostgreSQL's settings, which know escapes."""
    text = str(path).replace("\\", "\\\\").replace("'", "''")
    return f"'{text}'"


def _size(size: int, *, lowest: int, highest: int | None = None) -> str:
    size = max(size, lowest)
    if highest is not None:
        size = min(size, highest)
    return f"{size // MEBIBYTE}MB"


def _physical_memory() -> int:
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError):  # a system that does not tell
        return USUAL_MEMORY


def _available_cores() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


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
