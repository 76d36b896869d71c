"""The bytes of an answer that the kernel has taken from a socket and not yet sent."""

from __future__ import annotations

import fcntl
import sys
import termios


def unacknowledged_bytes(descriptor: int) -> int:
    """Return how many written bytes the client has not acknowledged yet.

    The kernel may take megabytes at once, and nothing more until a third of them has left.
    Where the system does not tell, the number is 0.
    """
    if not sys.platform.startswith("linux"):
        return 0
    try:
        answer = fcntl.ioctl(descriptor, termios.TIOCOUTQ, bytes(4))
    except OSError:
        return 0
    return int.from_bytes(answer, sys.byteorder, signed=True)
