"""The settings of the embedded server that depend on the machine: its memory and its cores.

They are in a file of their own, which includes postgresql.conf: settings there, or by ALTER SYSTEM,
override them.
"""

from __future__ import annotations

from pathlib import Path

from cms.embedded.data_folder import DataFolder
from cms.processes.machine import GIBIBYTE, MEBIBYTE, Machine


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
        # Half of the cores are left to other requests; one core gains nothing by parallel work.
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
        "# Written at each start, for the memory and the cores of this machine. "
        "Change nothing here:\n"
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
