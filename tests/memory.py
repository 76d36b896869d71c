"""The tests' temporary folder, in memory where that has room: a database is hundreds of small
files each time. And how much memory a process takes.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import psutil

SHARED_MEMORY = Path("/dev/shm")
ROOM_BYTES = 4 * 2**30


def use_memory() -> None:
    """Make memory the temporary folder of this process and of those that
    it starts, unless TMPDIR is set.
    """
    if "TMPDIR" not in os.environ and _fits(SHARED_MEMORY):
        os.environ["TMPDIR"] = tempfile.tempdir = str(SHARED_MEMORY)


def resident_bytes() -> int:
    """Return the memory of this process: Python's, and what the driver's library holds."""
    size: int = psutil.Process().memory_info().rss
    return size


def _fits(folder: Path) -> bool:
    """Tell whether a folder has room and runs programs, which containers often make it without."""
    if not os.access(folder, os.W_OK):
        return False
    stats = os.statvfs(folder)
    return stats.f_bavail * stats.f_frsize >= ROOM_BYTES and not stats.f_flag & os.ST_NOEXEC
