"""Whether a socket is readable, asked without giving up the interpreter's lock."""

from __future__ import annotations

import ctypes
import select

# Calls by PyDLL keep the interpreter's lock. `select.poll` gives it up even where it must not wait,
# and another thread would run first, for much longer than the call takes.
_poll = ctypes.PyDLL(None).poll


class _PollRequest(ctypes.Structure):
    """A `struct pollfd`."""

    _fields_ = (
        ("fd", ctypes.c_int),
        ("events", ctypes.c_short),
        ("revents", ctypes.c_short),
    )


class ReadableSocket:
    """Asks about one descriptor, which one thread at a time uses."""

    __slots__ = ("_reference", "_request")

    def __init__(self, descriptor: int) -> None:
        self._request = _PollRequest(descriptor, select.POLLIN, 0)
        self._reference = ctypes.byref(self._request)

    def has_something(self) -> bool:
        """Tell whether there is something to read, an error or an end; returns at once."""
        # Negative where a signal has come meanwhile.
        answer: int = _poll(self._reference, 1, 0)
        return answer > 0
