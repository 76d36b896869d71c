"""A stored content, to be read whole or in part."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

from cms.files.storage import CHUNK_BYTES, Storage, location_fault

# Parts of a path that are no names. The first is what a slash at either end leaves.
_NO_NAMES = frozenset(("", ".", ".."))


class StoredContent(NamedTuple):
    """A content and its size; `data` are all bytes of a small one.

    Files in a folder are read without the storage's library, which takes ten times as long.
    """

    storage: Storage
    path: str
    size: int
    data: bytes | None = None

    def chunks(self, start: int, length: int) -> Iterator[bytes]:
        """Return `length` bytes from `start` on, which must lie within the content."""
        if self.data is not None:
            # The file may have been removed meanwhile; these bytes are still those that were found.
            return iter((self.data[start : start + length],))
        folder = self.storage.folder
        if folder is None:
            return self.storage.get(self.path, start, length)
        return _read(file_path(folder, self.path), start, length)

    def loaded(self) -> StoredContent:
        """Return the content with all its bytes in memory."""
        if self.data is not None:
            return self
        return self._replace(data=b"".join(self.chunks(0, self.size)))


def find_content(storage: Storage, path: str) -> StoredContent:
    """Return the content at a path; raises FileNotFoundError or `Refused` SERVICE_UNAVAILABLE."""
    folder = storage.folder
    if folder is None:
        _require_storable(path)
        return StoredContent(storage, path, storage.size(path))
    try:
        return _find_in_folder(storage, folder, path)
    # A content that is gone has an answer of its own; all other faults are the location's.
    except FileNotFoundError:
        raise
    except OSError as fault:
        raise location_fault(storage.name) from fault


def _find_in_folder(storage: Storage, folder: Path, path: str) -> StoredContent:
    descriptor = os.open(file_path(folder, path), os.O_RDONLY | os.O_CLOEXEC)
    try:
        size = os.fstat(descriptor).st_size
        # A small content is read while its file is open anyway.
        data = os.read(descriptor, size) if size <= CHUNK_BYTES else None
        return StoredContent(storage, path, size, data)
    finally:
        os.close(descriptor)


def file_path(folder: Path, path: str) -> str:
    """Return the file of a path in a folder; raises FileNotFoundError for one that has none."""
    _require_storable(path)
    return f"{folder}/{path}"


@contextmanager
def local_file(storage: Storage, path: str, *, max_bytes: int | None = None) -> Iterator[Path]:
    """Yield the file of a content on this machine, or a temporary copy of its first bytes.

    Child processes read images from it: they have no access to the location.
    """
    if storage.folder is not None:
        file = Path(file_path(storage.folder, path))
        # Raises FileNotFoundError here, where the caller expects it, and not in a child process.
        file.stat()
        yield file
        return
    with TemporaryDirectory(prefix="cms-original-") as temporary:
        copy = Path(temporary, "original")
        with copy.open("wb") as target:
            target.writelines(storage.get(path, 0, max_bytes))
        yield copy


def _require_storable(path: str) -> None:
    # Paths come from the database, where other programs write too.
    if not is_storable(path):
        raise FileNotFoundError(path)


def is_storable(path: str) -> bool:
    """Tell whether a path can be that of a content: relative, and without `.` and `..`."""
    return _NO_NAMES.isdisjoint(path.split("/")) and "\0" not in path


def _read(file_path: str, start: int, length: int) -> Iterator[bytes]:
    # The pieces are larger than a buffer would be, so there is none.
    with open(file_path, "rb", buffering=0) as file:
        file.seek(start)
        while length > 0 and (piece := file.read(min(CHUNK_BYTES, length))):
            length -= len(piece)
            yield piece
