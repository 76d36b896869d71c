"""Archives as files of this machine, and as objects in buckets of S3."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from io import FileIO
from pathlib import Path
from typing import BinaryIO, Protocol

from cms.backup import BackupError
from cms.config import Config
from cms.config.locations import Location
from cms.errors import Refused
from cms.files.storage import Storage

_PREFIX = "s3://"
_CHUNK_BYTES = 2**18
_S3_PART_BYTES = 2**24
"""S3 takes at most 10,000 parts: with these an archive may have 160 GB."""


class Archive(Protocol):
    """One archive, which is there or will be."""

    def write(self, chunks: Iterable[bytes]) -> None:
        """Write a new archive, whole or not at all; raises `BackupError` if there is one."""

    def read(self) -> Iterator[bytes]:
        """Yield the bytes of the archive; raises `BackupError` if there is none."""

    def size(self) -> int:
        """Return how many bytes it has; raises `BackupError` if there is none."""


def archive_at(address: str, config: Config) -> Archive:
    """Return the archive at `s3://BUCKET/KEY`, or at the path of a file."""
    if not address.startswith(_PREFIX):
        return ArchiveFile(Path(address))
    bucket, _, key = address.removeprefix(_PREFIX).partition("/")
    if not bucket or not key:
        raise BackupError(f"{address} names no object: s3://BUCKET/KEY.")
    return ArchiveObject(Storage(_location(bucket, config)), key, name=address)


class ArchiveFile:
    """A file, which only its owner may read."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def write(self, chunks: Iterable[bytes]) -> None:
        self._refuse_existing()
        # Under another name until it is whole.
        unfinished = self._path.with_name(f"{self._path.name}.part")
        descriptor = self._new_file(unfinished)
        try:
            self._fill(descriptor, chunks)
            self._refuse_existing()
            with self._expected("written"):
                unfinished.rename(self._path)
        except BaseException:
            unfinished.unlink(missing_ok=True)
            raise

    def _new_file(self, path: Path) -> int:
        try:
            with self._expected("written"):
                return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        except FileExistsError:
            raise BackupError(
                f"{path} is there already: another backup is under way, or one was cut off. "
                "Remove it if none is."
            ) from None

    def _fill(self, descriptor: int, chunks: Iterable[bytes]) -> None:
        with open(descriptor, "wb", buffering=0) as file:
            for chunk in chunks:
                # Not around the loop: errors in making the chunks are no errors of this file.
                with self._expected("written"):
                    _write_all(file, chunk)
            with self._expected("written"):
                os.fsync(file.fileno())

    def _refuse_existing(self) -> None:
        # Not `Path.exists`, which raises for a name that is too long or a folder that is closed.
        if os.path.lexists(self._path):
            raise BackupError(f"{self._path} is there already. Name a new file.")

    def read(self) -> Iterator[bytes]:
        with self._expected("read"):
            file = open(self._path, "rb")  # noqa: SIM115 - closed below, where errors differ
        with file:
            while chunk := self._chunk(file):
                yield chunk

    def _chunk(self, file: BinaryIO) -> bytes:
        with self._expected("read"):
            return file.read(_CHUNK_BYTES)

    def size(self) -> int:
        with self._expected("read"):
            return self._path.stat().st_size

    @contextmanager
    def _expected(self, verb: str) -> Iterator[None]:
        try:
            yield
        except FileExistsError:
            raise
        except OSError as error:
            raise BackupError(f"{self._path} cannot be {verb}: {error.strerror}.") from None


def _write_all(file: FileIO, chunk: bytes) -> None:
    rest = memoryview(chunk)
    while rest:
        rest = rest[file.write(rest) :]


class ArchiveObject:
    """An object in a bucket, reached as a storage location is."""

    def __init__(self, storage: Storage, key: str, *, name: str) -> None:
        self._storage = storage
        self._key = key
        self._name = name

    def write(self, chunks: Iterable[bytes]) -> None:
        # This also finds a wrong account before anything is read.
        with self._expected():
            is_there = self._storage.exists(self._key)
        if is_there:
            raise BackupError(f"{self._name} is there already. Name a new object.")
        self._storage.put(self._key, chunks, part_bytes=_S3_PART_BYTES)

    def read(self) -> Iterator[bytes]:
        with self._expected():
            yield from self._storage.get(self._key)

    def size(self) -> int:
        with self._expected():
            return self._storage.size(self._key)

    @contextmanager
    def _expected(self) -> Iterator[None]:
        try:
            yield
        except FileNotFoundError:
            raise BackupError(f"{self._name} is not there.") from None
        except Refused as refusal:
            raise BackupError(
                f"{self._name} cannot be reached with the account of the storage location "
                f"{self._storage.name}: check its bucket, endpoint, region and key."
            ) from refusal


def _location(bucket: str, config: Config) -> Location:
    """Return a location for all of a bucket, with the account of a storage location.

    That is the location of this bucket, else the first one of S3.
    """
    locations = [location for location in config.locations if location.driver == "s3"]
    # Stable: among the others the order of the settings stays.
    locations.sort(key=lambda location: location.bucket != bucket)
    if not locations:
        raise BackupError(
            "No storage location is in S3, whose account an archive in a bucket needs: "
            "docs/backup.md tells how to set one up for backups alone."
        )
    return replace(locations[0], bucket=bucket, root="")
