"""Advisory locks that the kernel drops when their last holder is gone, however it went.

Three files: `start` is held by whoever starts or stops the server; `users` is shared by all who use it;
`server` is taken by whoever starts the server and inherited by `initdb` and all the server's processes, so
that it tells with certainty whether one of them lives, which a process number never does.
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
    """Take the lock together with others and return its descriptor; waits while somebody holds it alone."""
    lock = open_lock(path)
    fcntl.flock(lock, fcntl.LOCK_SH)
    return lock


def is_held(path: Path) -> bool:
    """Tell whether somebody holds the lock alone; askers do not disturb each other."""
    if not path.exists():
        return False
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
    """Return as soon as nobody holds the lock alone."""
    release(acquire_shared(path))


def is_last_user(lock: int) -> bool:
    """Tell whether nobody else shares this lock, and hold it alone when that is so.

    The attempt gives up the share for a moment, in which the keeper may take the lock; the wait at the end is
    then for the keeper to have stopped the server.
    """
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        fcntl.flock(lock, fcntl.LOCK_SH)
        return False
    return True


def release(lock: int) -> None:
    """Give up the lock, also on behalf of children that were forked with it, which closing does not."""
    fcntl.flock(lock, fcntl.LOCK_UN)
    os.close(lock)


def open_lock(path: Path) -> int:
    """Open a lock file, which is never removed: a lock belongs to the file and not to its name."""
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
