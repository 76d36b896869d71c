"""A pipe that is full because nobody reads it, like that of a log whose reader hangs."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import NamedTuple

MAX_READ = 2**20  # more than a pipe holds


class FullPipe(NamedTuple):
    read_end: int
    write_end: int

    def empty(self) -> bytes:
        """Read what is in the pipe; raises BlockingIOError where it is empty."""
        return os.read(self.read_end, MAX_READ)


@contextmanager
def full_pipe() -> Iterator[FullPipe]:
    pipe = FullPipe(*os.pipe())
    try:
        os.set_blocking(pipe.read_end, False)
        os.set_blocking(pipe.write_end, False)
        with suppress(BlockingIOError):
            while True:
                os.write(pipe.write_end, bytes(4096))
        os.set_blocking(pipe.write_end, True)
        yield pipe
    finally:
        os.close(pipe.read_end)
        os.close(pipe.write_end)
