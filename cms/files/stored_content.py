"""A content that is there, to be read whole or in part."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from cms.errors import unavailable
from cms.files.storage import Storage

CHUNK_BYTES = 2**18
"""What is read at a time, and the most that is held at once."""


@dataclass(frozen=True, slots=True)
class StoredContent:
    """`data` is all of a small one. A folder's files are read without the storage's library, in a
    tenth of its time.
    """

    storage: Storage
    path: str
    size: int
    data: bytes | None = field(default=None, repr=False)

    def chunks(self, start: int, length: int) -> Iterator[bytes]:
        """Return a part of it, which must lie within it."""
        if self.data is not None:
            return iter((self.data[start : start + length],))
        folder = self.storage.folder
        if folder is None:
            return self.storage.get(self.path, start, length)
        return _read(file_path(folder, self.path), start, length)


def find_content(storage: Storage, path: str) -> StoredContent:
    """Return the content under a path; raises FileNotFoundError, or `Refused` SERVICE_UNAVAILABLE."""
    folder = storage.folder
    if folder is None:
        return StoredContent(storage, path, storage.size(path))
    try:
        return StoredContent(storage, path, *_size_and_data(file_path(folder, path)))
    except FileNotFoundError:
        raise
    except OSError as fault:
        raise unavailable("storage", f'The location "{storage.name}" does not do it') from fault


def _size_and_data(file_path: str) -> tuple[int, bytes | None]:
    """Return the size of a file, and all of it when it is small."""
    descriptor = os.open(file_path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        size = os.fstat(descriptor).st_size
        return size, os.read(descriptor, size) if size <= CHUNK_BYTES else None
    finally:
        os.close(descriptor)


def file_path(folder: Path, path: str) -> str:
    """Return where a path lies in a folder; one that leads out of it is nowhere."""
    if ".." in path.split("/") or "\0" in path:
        raise FileNotFoundError(path)
    return f"{folder}/{path}"


def _read(file_path: str, start: int, length: int) -> Iterator[bytes]:
    with open(file_path, "rb", buffering=0) as file:
        file.seek(start)
        while length > 0 and (piece := file.read(min(CHUNK_BYTES, length))):
            length -= len(piece)
            yield piece
