"""Files that nobody may open."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def unopened_pipe(folder: Path) -> Iterator[Path]:
    """Yield a pipe, and fail the test if it is opened meanwhile."""
    pipe = folder / "pipe"
    os.mkfifo(pipe)
    is_opened = threading.Event()
    threading.Thread(target=_note_reader, args=[pipe, is_opened], daemon=True).start()
    yield pipe
    assert not is_opened.is_set()
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)  # lets the thread go
    assert is_opened.wait(60)
    os.close(reader)


def _note_reader(pipe: Path, is_opened: threading.Event) -> None:
    """Wait until somebody opens a pipe, and close it at once."""
    with pipe.open("wb"):
        is_opened.set()
