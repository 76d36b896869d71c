"""Disks that are soon full."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import pytest

SHARED_MEMORY = Path("/dev/shm")
SMALL_BYTES = 512 * 2**20
"""A shared memory of fewer bytes is that of a container, which nothing else needs to have room."""


@dataclass(frozen=True)
class SmallDisk:
    """A folder on a disk with little room."""

    folder: Path

    @property
    def ballast(self) -> Path:
        return self.folder / "ballast"

    def free_bytes(self) -> int:
        return shutil.disk_usage(self.folder).free

    def fill(self, *, leave: int = 0) -> None:
        """Take all room but so many bytes."""
        with suppress(OSError), self.ballast.open("ab", buffering=0) as file:
            while (room := self.free_bytes() - leave) > 0:
                file.write(b"x" * min(room, 2**20))

    def make_room(self) -> None:
        self.ballast.unlink()


@contextmanager
def small_disk(size: int) -> Iterator[SmallDisk]:
    """Yield a disk with about so many bytes: one in memory that is mounted, or what a container has
    of shared memory, filled up to there.
    """
    with ExitStack() as stack:
        folder = Path(tempfile.mkdtemp(prefix="cms-disk-", dir="/tmp"))
        stack.callback(folder.rmdir)
        folder.chmod(0o755)
        if _mount(folder, size):
            stack.callback(_as_root, "umount", "-l", str(folder))
            yield SmallDisk(folder)
            return
        yield stack.enter_context(_rest_of_shared_memory(size))


def _mount(folder: Path, size: int) -> bool:
    options = f"size={size},mode=0755,uid={os.getuid()}"
    return _as_root("mount", "-t", "tmpfs", "-o", options, "tmpfs", str(folder))


def _as_root(*words: str) -> bool:
    command = words if os.geteuid() == 0 else ("sudo", "-n", *words)
    if shutil.which(command[0]) is None:
        return False
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


@contextmanager
def _rest_of_shared_memory(size: int) -> Iterator[SmallDisk]:
    if not os.access(SHARED_MEMORY, os.W_OK) or shutil.disk_usage(SHARED_MEMORY).free > SMALL_BYTES:
        pytest.skip("a small disk takes the right to mount one, or a container's shared memory")
    if shutil.disk_usage(SHARED_MEMORY).free < size:
        # Not skipped, which is a failure on CI: to mount a disk may be forbidden there.
        pytest.xfail(f"a disk of {size} bytes takes the right to mount one")
    with tempfile.TemporaryDirectory(prefix="cms-disk-", dir=SHARED_MEMORY) as name:
        folder = Path(name)
        folder.chmod(0o755)
        disk = SmallDisk(folder)
        disk.fill(leave=size)
        # It stays when the test makes room.
        disk.ballast.rename(folder / "taken")
        yield disk
