"""Reads an archive without changing anything, to find out whether it is complete."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from cms.backup.archive_format import Member, unpacked
from cms.backup.archives import Archive
from cms.backup.error import BackupError, DamagedArchive
from cms.backup.manifest import HEAD, LISTS, Entry, Head, read_entries, read_head
from cms.backup.progress import Watcher

MAX_DESCRIPTION_BYTES = 2**26
"""More than the structure of ten thousand collections takes."""


def head_of(archive: Archive) -> Head:
    """Return the head of an archive, whatever follows it."""
    for member in unpacked(archive.read()):
        return _head(member)
    raise DamagedArchive("it is empty")


def verified(archive: Archive, watcher: Watcher) -> int:
    """Read an archive to its end, and return how many files have no content in it.

    Raises `DamagedArchive` if a byte is missing or has changed.
    """
    missing = 0
    watcher.begin("checking", archive.size())
    for member in unpacked(watched(archive.read(), watcher)):
        if member.name.startswith(f"{LISTS}/"):
            missing += _report_missing(read_entries(content_bytes(member)), watcher)
    return missing


@contextmanager
def believing_head(archive: Archive, watcher: Watcher) -> Iterator[None]:
    """Let refusals pass that come of the head of an archive only if the archive is whole.

    Its checksum is at its end: until it is read, a changed byte may be all that is wrong.
    """
    try:
        yield
    except BackupError:
        watcher.begin("checking", archive.size())
        for _member in unpacked(watched(archive.read(), watcher)):
            continue
        raise


def content_bytes(member: Member) -> bytes:
    """Return the whole content of a member that describes others, and so is small."""
    if member.size > MAX_DESCRIPTION_BYTES:
        raise DamagedArchive(f"{member.name} is too large")
    return b"".join(member.pieces)


def watched(chunks: Iterable[bytes], watcher: Watcher) -> Iterator[bytes]:
    for chunk in chunks:
        watcher.advance(len(chunk))
        yield chunk


def _head(member: Member) -> Head:
    if member.name != HEAD:
        raise DamagedArchive(f"it does not begin with {HEAD}")
    return read_head(content_bytes(member))


def _report_missing(entries: list[Entry], watcher: Watcher) -> int:
    missing = [entry for entry in entries if entry.sha256 is None]
    for entry in missing:
        watcher.report(
            f"The archive lacks the content of the file {entry.key} ({entry.name}), which "
            "was not there when it was backed up."
        )
    return len(missing)
