"""How much a client may send and how long it may take.

docs/deployment.md has the reasons under "Clients, slow and many".
"""

from __future__ import annotations

from dataclasses import dataclass

MAX_HEAD_BYTES = 65_536
MAX_BUFFERED_BODY = 262_144
"""A body up to this size is read before a thread is taken; a thread reads longer ones."""
MAX_BUFFERED_IN_ALL = 67_108_864
"""The bytes of all bodies together that wait for a thread, or are not complete yet."""
MAX_UNREAD = 262_144
"""The client must wait while so much of its body has not been read by its thread."""
MAX_UNSENT = 262_144
"""The thread must wait while so much of its streamed answer has not been taken by the client."""
MAX_UNSENT_IN_ALL = 268_435_456
"""The bytes of all answers together that have not been taken by their clients."""
MAX_PIPELINED = 32
"""Requests of one connection that may wait for an answer; the next is not parsed yet."""
MAX_PIPELINED_BYTES = 262_144
"""The client must wait while so much has arrived behind a request that is not answered yet."""
MAX_FRAMING_BYTES = 65_536
"""Bytes of extensions and trailers of chunks, which nobody reads, beyond 16 for each of the body.
"""
PARSE_SECONDS = 0.005
"""After parsing one connection for so long, the event loop turns to the others."""
MAX_LINGERING_BYTES = 1_048_576
"""Bytes that are read and thrown away after the last answer, before the connection is reset."""
LINGER_SECONDS = 2.0
"""How long a client may take to read the last answer and to close."""
SWEEP_SECONDS = 0.5
"""How often time limits are looked at; they may be exceeded by so much."""
DRAIN_SECONDS = 0.5
"""How long a server that stops waits for the next request of a connection."""
MIN_BYTES_PER_WINDOW = 262_144
"""The bytes that a client must send or take in `rate_window_seconds`, unless it finishes before."""

DESCRIPTORS_PER_CONNECTION = 2
"""One of the event loop and one of the threads (`WebServer.socket_of`)."""


@dataclass(frozen=True, slots=True)
class ClientLimits:
    """The limits of a client by the settings; times are in seconds.

    `request_seconds` bounds a head, and a body that is read before a thread is taken. Longer bodies
    and answers must move `MIN_BYTES_PER_WINDOW` in every `rate_window_seconds`. A request that has
    waited for a thread for `queue_seconds` is refused. A thread that has worked on one request for
    `thread_seconds` counts as hung.
    """

    request_seconds: float = 10.0
    idle_seconds: float = 5.0
    queue_seconds: float = 5.0
    thread_seconds: float = 900.0
    rate_window_seconds: float = 30.0
    max_connections: int = 10_000
    max_streams: int = 256


class TransferRate:
    """The bytes that one client moves, measured in windows of some seconds."""

    __slots__ = ("_moved", "_window_began")

    def __init__(self) -> None:
        self._window_began = 0.0
        self._moved = 0

    def reset(self) -> None:
        """Note that nothing moves: the next measurement begins a new window."""
        self._window_began = 0.0

    def is_too_slow(self, moved: int, *, now: float, window_seconds: float) -> bool:
        """Tell whether a window has ended in which fewer than `MIN_BYTES_PER_WINDOW` have moved.

        `moved` counts all bytes so far, in either direction.
        """
        if self._window_began and now - self._window_began < window_seconds:
            return False
        is_too_slow = self._window_began > 0 and moved - self._moved < MIN_BYTES_PER_WINDOW
        self._window_began = now
        self._moved = moved
        return is_too_slow
