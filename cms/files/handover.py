"""Chunks handed from the thread that makes them to one that uploads them.

obstore asks for chunks within its event loop, where it can read nothing itself: chunks that come
from another content, as of a backup into a bucket, are made outside of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from queue import Full, Queue

_SECONDS_BETWEEN_LOOKS = 0.1


class Abandoned(Exception):
    """The chunks end by an error, which their maker raises."""


class Handover:
    """A queue for one chunk, with a giver and a taker in different threads."""

    def __init__(self) -> None:
        # Nothing but a chunk or the end: None, or `Abandoned` where no more chunks can be made.
        self._queue: Queue[bytes | Abandoned | None] = Queue(maxsize=1)

    def give(self, chunks: Iterable[bytes], *, has_ended: Callable[[], bool]) -> None:
        """Hand over all chunks, until the taker has ended; their errors pass through."""
        try:
            for chunk in chunks:
                if not self._put(chunk, has_ended):
                    return
        except BaseException:
            self._put(Abandoned(), has_ended)
            raise
        self._put(None, has_ended)

    def _put(self, chunk: bytes | Abandoned | None, has_ended: Callable[[], bool]) -> bool:
        while not has_ended():
            try:
                self._queue.put(chunk, timeout=_SECONDS_BETWEEN_LOOKS)
            except Full:
                continue
            return True
        return False

    def taken(self) -> Iterator[bytes]:
        """Yield the chunks in the other thread; raises `Abandoned`."""
        while (chunk := self._queue.get()) is not None:
            if isinstance(chunk, Abandoned):
                raise chunk
            yield chunk
