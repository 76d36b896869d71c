"""How much a client may send and how long it may take, as values (docs/deployment.md, "Clients,
slow and many").
"""

from __future__ import annotations

from dataclasses import dataclass

MAX_HEAD_BYTES = 65_536
MAX_BUFFERED_BODY = 262_144
"""A body up to this size is read before a thread is taken; a longer one is read by the thread while
it comes in.
"""
MAX_BUFFERED_IN_ALL = 67_108_864
"""What all bodies together may hold that wait for a thread, or for the rest of themselves."""
MAX_UNREAD = 262_144
"""How much of a body may wait for the thread that reads it before the client is made to wait."""
MAX_UNSENT = 262_144
"""How much of a streamed answer may wait for its client before the thread is made to wait."""
MAX_PIPELINED = 32
MAX_BYTES_AHEAD = 262_144
"""How much may come behind a request that is not answered yet, before the client is made to wait.
"""
MAX_FRAMING_BYTES = 65_536
"""What chunks may hold beside 16 bytes for each of the body: extensions and trailers, which nobody
reads.
"""
LOCK_RETRY_SECONDS = 0.005
"""How long one connection's bytes may be parsed before it is the others' turn."""
MAX_LINGERING_BYTES = 1_048_576
LINGER_SECONDS = 2.0
SWEEP_SECONDS = 0.5
DRAIN_SECONDS = 0.5
"""How long a server that stops waits for the next request of a connection."""


PACE_BYTES = 262_144
"""What a client has to send or take within `pace_seconds`, where it has not finished before."""


@dataclass(frozen=True, slots=True)
class ClientLimits:
    """What the settings allow a client; times in seconds.

    `request_seconds` bounds a head, and a body that is read before a thread is taken, as a whole. Everything longer has
    to move `PACE_BYTES` in each `pace_seconds`. A request that has waited `queue_seconds` for a thread is refused. A
    thread that has worked for `thread_seconds` on one request hangs.
    """

    request_seconds: float = 10.0
    idle_seconds: float = 5.0
    queue_seconds: float = 5.0
    thread_seconds: float = 900.0
    pace_seconds: float = 30.0
    max_connections: int = 10_000
    max_streams: int = 256
