"""Whether a descriptor can be read or written, asked without giving up the interpreter's lock."""

from __future__ import annotations

import ctypes

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


class PolledDescriptor:
    """Asks about one descriptor; `events` is `select.POLLIN` or `select.POLLOUT`."""

    __slots__ = ("_reference", "_request")

    def __init__(self, descriptor: int, events: int) -> None:
        self._request = _PollRequest(descriptor, events, 0)
        self._reference = ctypes.byref(self._request)

    def is_ready(self) -> bool:
        """Tell whether to read or write would not wait, as after an error or an end."""
        # Negative where a signal has come meanwhile.
        answer: int = _poll(self._reference, 1, 0)
        return answer > 0
