"""The machine of a run, without its name."""

from __future__ import annotations

import os
import platform
from pathlib import Path


def describe_machine() -> str:
    """Return the system, the cores and the version of Python."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    python = platform.python_version()
    shared = f"{cores} cores for client, servers and database"
    return f"{platform.system()}, {shared}, Python {python}{_autogroups()}"


def _autogroups() -> str:
    """Tell whether the kernel divides its processors among sessions, which lengthens the p99.

    It does not do so in a cgroup of its own, as services and containers have.
    """
    try:
        is_on = Path("/proc/sys/kernel/sched_autogroup_enabled").read_text().strip() == "1"
    except OSError:  # another system, or a kernel without them
        return ""
    return f", autogroups {'on' if is_on else 'off'}"
