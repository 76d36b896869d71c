"""Chunks handed from the thread that makes them to one that uploads them.

obstore asks for chunks within its event loop, where it can read nothing itself: chunks that come
from another content, as of a backup into a bucket, are made outside of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from queue import Empty, Full, Queue

_SECONDS_BETWEEN_LOOKS = 0.1


class Abandoned(Exception):
    """The chunks end by an error, which their maker raises."""


class Handover:
    """A queue for one chunk, with a giver and a taker in different threads.

    An error that leaves the giver's `with` block ends the taker as well.
    """

    def __init__(self) -> None:
        self._queue: Queue[bytes | None] = Queue(maxsize=1)  # None is the end
        self._is_abandoned = False

    def __enter__(self) -> Handover:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        # No call that waits: whoever interrupts a program once may do so again meanwhile.
        self._is_abandoned = kind is not None

    def give(self, chunks: Iterable[bytes], *, has_ended: Callable[[], bool]) -> None:
        """Hand over all chunks, until the taker has ended; their errors pass through."""
        for chunk in chunks:
            if not self._put(chunk, has_ended):
                return
        self._put(None, has_ended)

    def _put(self, chunk: bytes | None, has_ended: Callable[[], bool]) -> bool:
        while not has_ended():
            try:
                self._queue.put(chunk, timeout=_SECONDS_BETWEEN_LOOKS)
            except Full:
                continue
            return True
        return False

    def taken(self) -> Iterator[bytes]:
        """Yield the chunks in the other thread; raises `Abandoned`."""
        while (chunk := self._take()) is not None:
            yield chunk

    def _take(self) -> bytes | None:
        while not self._is_abandoned:
            try:
                return self._queue.get(timeout=_SECONDS_BETWEEN_LOOKS)
            except Empty:
                continue
        raise Abandoned
