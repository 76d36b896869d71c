"""Contents of files in named locations: a folder, S3, Google Cloud Storage or Azure.

All of them are reached through obstore.
A content is put whole or not at all: an iterator of chunks that raises leaves nothing behind.
"""

from __future__ import annotations

import hashlib
import os
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cached_property
from pathlib import Path
from queue import Empty, Full, Queue
from typing import Any

import obstore
from obstore.exceptions import BaseError
from obstore.store import ObjectStore

from cms.config import Config
from cms.config.locations import Location
from cms.errors import (
    FULL_DISK_ERRORS,
    Refused,
    abbreviated,
    insufficient_storage,
    invalid_payload,
    unavailable,
)
from cms.files.storage_clients import open_client

PART_BYTES = 5 * 2**20
"""The bytes of a part of an upload; S3 takes no smaller ones."""

CHUNK_BYTES = 2**18
"""The bytes of a content that are read, and held in memory, at a time."""

MAX_CONCURRENT_PARTS = 2
"""Parts of one upload under way at a time; each is held in memory."""

# obstore's names for contents in a folder that are not whole yet.
# `path#1`, renamed to `path` when all bytes are there.
_STAGED = re.compile(r"#\d+$")

# obstore's errors carry the number of the system's error in their text alone.
_SYSTEM_ERROR = re.compile(r"\(os error (\d+)\)")


@dataclass(frozen=True, slots=True)
class PutResult:
    """The number of bytes that were stored, and their SHA-256 in hexadecimal."""

    size: int
    sha256: str


@dataclass(frozen=True, slots=True)
class ListedContent:
    """A content in a listing."""

    path: str
    size: int
    modified: datetime


class Storage:
    """One location. Paths are relative, with `/` between their parts.

    Every method raises `Refused` SERVICE_UNAVAILABLE when the location does not answer,
    INSUFFICIENT_STORAGE when it is full, and FileNotFoundError where it needs a content that is not
    there.
    """

    def __init__(self, location: Location) -> None:
        self.name = location.name
        self._location = location

    @cached_property
    def _store(self) -> ObjectStore:
        """The client of the location, made at its first use, which is after the fork."""
        return open_client(self._location)

    @cached_property
    def folder(self) -> Path | None:
        """The folder of a location on this machine; None for any other location."""
        if self._location.driver != "local":
            return None
        return Path(self._location.root)

    def put(self, path: str, chunks: Iterable[bytes], *, part_bytes: int = PART_BYTES) -> PutResult:
        """Store a content under a path, replacing another one; at most a few parts are in memory.

        A larger content than 10,000 parts of `part_bytes` is more than S3 takes.

        An exception that the chunks raise passes through, and then nothing of them is stored.
        """
        counted = _HashingChunks(chunks)
        beginning = _read_first_part(counted)
        try:
            with self._mapped_errors(counted):
                self._put(path, beginning, part_bytes)
                self._sync_to_disk(path)
        except Refused:
            if counted.fault is None:
                # It may have stored the content although it answered with an error.
                with suppress(Refused):
                    self.delete([path])
            raise
        return PutResult(counted.size, counted.hash.hexdigest())

    def _put(self, path: str, beginning: bytes | Iterator[bytes], part_bytes: int) -> None:
        if isinstance(beginning, bytes):
            obstore.put(self._store, path, beginning)
            return
        handover = Handover()
        with ThreadPoolExecutor(1, "upload") as threads, handover:
            upload = threads.submit(
                obstore.put,
                self._store,
                path,
                handover.taken(),
                use_multipart=True,
                chunk_size=part_bytes,
                max_concurrency=MAX_CONCURRENT_PARTS,
            )
            handover.give(beginning, has_ended=upload.done)
        upload.result()

    def get(
        self, path: str, start: int | None = None, length: int | None = None
    ) -> Iterator[bytes]:
        """Return a content in pieces, or `length` bytes of it from `start` on.

        These must lie within the content.
        """
        # Stores refuse a range of no bytes.
        if length == 0:
            return iter(())
        with self._mapped_errors():
            result = obstore.get(self._store, path, options=_range(start or 0, length))
        return self._pieces(result)

    def size(self, path: str) -> int:
        """Return how many bytes a content has."""
        with self._mapped_errors():
            return obstore.head(self._store, path)["size"]

    def exists(self, path: str) -> bool:
        """Tell whether there is a content under a path."""
        try:
            self.size(path)
        except FileNotFoundError:
            return False
        return True

    def delete(self, paths: Iterable[str]) -> None:
        """Remove contents; those that are not there are no fault."""
        with self._mapped_errors():
            for path in paths:
                try:
                    obstore.delete(self._store, path)
                except FileNotFoundError:
                    continue

    def list(self, prefix: str = "") -> Iterator[ListedContent]:
        """Yield the contents below a prefix, which is a folder of paths; without one, all of them.

        Below `a` is `a/b`, but not `ab`.
        """
        with self._mapped_errors():
            for batch in obstore.list(self._store, prefix=prefix or None):
                for entry in batch:
                    yield ListedContent(entry["path"], entry["size"], entry["last_modified"])

    def remove_staged(self, age: timedelta) -> tuple[str, ...]:
        """Remove the unfinished uploads of killed processes from a folder, and return their paths.

        A bucket removes them by its own life-cycle rule for unfinished uploads.
        """
        if self.folder is None or not self.folder.is_dir():
            return ()
        before = time.time() - age.total_seconds()
        removed = []
        # The pattern is only a first choice: names of other programs may hold the sign too.
        for path in self.folder.rglob("*#*"):
            if not _STAGED.search(path.name) or not path.is_file():
                continue
            # A younger one may belong to an upload that is still under way.
            if path.stat().st_mtime < before:
                path.unlink(missing_ok=True)
                removed.append(str(path.relative_to(self.folder)))
        return tuple(removed)

    def _pieces(self, result: Any) -> Iterator[bytes]:
        with self._mapped_errors():
            for piece in result.stream(min_chunk_size=CHUNK_BYTES):
                yield bytes(piece)

    def _sync_to_disk(self, path: str) -> None:
        """Have a folder's content on the disk before its row is committed."""
        if self.folder is None:
            return
        file = self.folder / path
        # The folder too: it holds the file's name.
        for synced in (file, file.parent):
            descriptor = os.open(synced, os.O_RDONLY)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)

    @contextmanager
    def _mapped_errors(self, chunks: _HashingChunks | None = None) -> Iterator[None]:
        try:
            yield
        except FileNotFoundError:
            if chunks is None:
                raise
            # Only the location itself can be missing where a content is put.
            raise unavailable("storage", f'The location "{self.name}" is not there') from None
        except (BaseError, OSError) as fault:
            # A client that breaks off is no fault of the location.
            if chunks is not None and chunks.fault is fault:
                raise
            # Without obstore's text, which holds addresses and paths.
            if _system_error(fault) in FULL_DISK_ERRORS:
                raise insufficient_storage("storage") from fault
            raise location_fault(self.name) from fault


class Storages(Mapping[str, Storage]):
    """The locations by name, in the order of the settings; the first is the default."""

    def __init__(self, locations: Iterable[Location]) -> None:
        self._known = {location.name: Storage(location) for location in locations}

    @classmethod
    def from_config(cls, config: Config) -> Storages:
        """Return the storage locations of the settings; each connects at its first use."""
        return cls(config.locations)

    def __getitem__(self, name: str) -> Storage:
        return self._known[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._known)

    def __len__(self) -> int:
        return len(self._known)

    @property
    def default(self) -> Storage:
        return next(iter(self._known.values()))

    def requested(self, name: str) -> Storage:
        """Return the location that a client names; raises `Refused` INVALID_PAYLOAD without one."""
        storage = self._known.get(name)
        if storage is None:
            raise invalid_payload(
                "There is no such storage location", field="storage", value=abbreviated(name)
            )
        return storage

    def existing(self, name: str) -> Storage:
        """Return the location that a file's row names.

        Raises `Refused` SERVICE_UNAVAILABLE for a location that is no longer in the settings.
        """
        storage = self._known.get(name)
        if storage is None:
            raise unavailable("storage", f'The location "{name}" is not set up')
        return storage


def location_fault(name: str) -> Refused:
    """Return SERVICE_UNAVAILABLE for a failing location, without the addresses in its message."""
    return unavailable("storage", f'The location "{name}" does not do it')


class _HashingChunks:
    """Chunks that are counted and hashed as they pass; `fault` is what they raised, if anything."""

    def __init__(self, chunks: Iterable[bytes]) -> None:
        self.size = 0
        self.hash = hashlib.sha256()
        self.fault: BaseException | None = None
        self._chunks = iter(chunks)

    def __iter__(self) -> Iterator[bytes]:
        return self

    def __next__(self) -> bytes:
        try:
            chunk = next(self._chunks)
        except StopIteration:
            raise
        except BaseException as fault:
            # obstore passes it on; `Storage` tells it from an error of the location by this.
            self.fault = fault
            raise
        self.size += len(chunk)
        self.hash.update(chunk)
        return chunk


def _read_first_part(chunks: Iterator[bytes]) -> bytes | Iterator[bytes]:
    """Return all bytes of a content that fits into one part, or an iterator over a larger one."""
    # One request stores a small content; an upload in parts takes three.
    buffered: list[bytes] = []
    size = 0
    for chunk in chunks:
        buffered.append(chunk)
        size += len(chunk)
        if size >= PART_BYTES:
            return _chunks_from(buffered, chunks)
    return b"".join(buffered)


def _chunks_from(buffered: list[bytes], rest: Iterator[bytes]) -> Iterator[bytes]:
    # Each chunk is freed once it has been passed on.
    while buffered:
        yield buffered.pop(0)
    yield from rest


def _system_error(fault: BaseError | OSError) -> int | None:
    """Return the number of the system's error, where an error of a location is one."""
    if isinstance(fault, OSError) and fault.errno is not None:
        return fault.errno
    match = _SYSTEM_ERROR.search(str(fault))
    if match is None:
        return None
    return int(match[1])


def _range(start: int, length: int | None) -> Any:
    if length is not None:
        return {"range": (start, start + length)}
    if start:
        return {"range": {"offset": start}}
    return {}


# Chunks handed from one thread to another, which uploads them

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
