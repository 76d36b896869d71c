"""Advisory locks, which the kernel releases when their last holder ends, however it ends.

There are three files. A process that starts or stops the server holds `start`. All processes that
use the server share `users`. The process that starts the server takes `server`, which `initdb` and
all processes of the server inherit: so it shows with certainty whether one of them lives, which a
process number never does.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold the lock alone; waits for it."""
    lock = acquire(path)
    try:
        yield
    finally:
        release(lock)


def acquire(path: Path) -> int:
    """Take the lock alone and return its descriptor, for a child to inherit; waits for it."""
    lock = open_lock(path)
    fcntl.flock(lock, fcntl.LOCK_EX)
    return lock


def acquire_shared(path: Path) -> int:
    """Take the lock together with others and return its descriptor; waits for a sole holder."""
    lock = open_lock(path)
    fcntl.flock(lock, fcntl.LOCK_SH)
    return lock


def is_held(path: Path) -> bool:
    """Tell whether somebody holds the lock alone; askers do not disturb each other."""
    if not path.exists():
        return False  # opening the file would create it, and a question must create nothing
    lock = open_lock(path)
    try:
        fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    else:
        return False
    finally:
        release(lock)


def await_release(path: Path) -> None:
    """Return as soon as nobody holds the lock exclusively."""
    release(acquire_shared(path))


def is_last_user(lock: int) -> bool:
    """Tell whether nobody else shares this lock, and hold it alone when that is so.

    The attempt gives up the share for a moment, in which the watchdog may take the lock; then the
    wait for a share lasts until the watchdog has stopped the server.
    """
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        fcntl.flock(lock, fcntl.LOCK_SH)
        return False
    return True


def release(lock: int) -> None:
    """Release the lock, which closing alone does not do while forked children have it too."""
    fcntl.flock(lock, fcntl.LOCK_UN)
    os.close(lock)


def open_lock(path: Path) -> int:
    """Open a lock file, which is never removed: a lock belongs to the file, not to its name."""
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
