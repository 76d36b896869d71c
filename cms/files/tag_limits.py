"""Limits for the tags of images, which Pillow reads without any.

A tag says where its value lies in the block of tags, and values may overlap: tags of one megabyte
can have values of gigabytes. In an honest block each byte belongs to one value.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from io import BytesIO
from typing import IO, BinaryIO, cast

from PIL import Image
from PIL.TiffImagePlugin import ImageFileDirectory_v2

MAX_BLOCK_BYTES = 2**17
"""Bytes of a block of EXIF tags; those of a JPEG have at most 64 KB."""

MAX_DIRECTORY_BYTES = 2**21
"""Bytes of a directory of a TIFF: as numbers in memory they take up to twenty times as much."""

MAX_READS = 10_000
"""Reads of a file: each byte of a head may be made to cost one."""

_is_limited = ContextVar("is_limited", default=False)
_load_block = Image.Exif.load
_load_directory = ImageFileDirectory_v2.load


class BoundedReader:
    """A file that ends, wherever it was read, after a number of bytes or reads."""

    def __init__(self, file: IO[bytes], max_bytes: int) -> None:
        self._file = file
        self._bytes_left = max_bytes
        self._reads_left = MAX_READS
        self.seek = file.seek
        self.tell = file.tell

    def read(self, size: int = -1) -> bytes:
        if size < 0 or size > self._bytes_left:
            size = self._bytes_left
        if self._reads_left == 0:
            return b""
        self._reads_left -= 1
        data = self._file.read(size)
        self._bytes_left -= len(data)
        return data


def bounded(file: IO[bytes], max_bytes: int) -> BinaryIO:
    """Return a file of which `max_bytes` bytes can be read, as far as Pillow reads files."""
    return cast("BinaryIO", BoundedReader(file, max_bytes))


@contextmanager
def limited_tags() -> Iterator[None]:
    """Have Pillow read no more of tags than an honest image has.

    Pillow has no setting for this. Beyond this block it is as ever: the service may share its
    process with an application that reads images, too.
    """
    Image.Exif.load = _load_block_within_limits  # type: ignore[method-assign, assignment]
    directories = ImageFileDirectory_v2
    directories.load = _load_directory_within_limits  # type: ignore[method-assign, assignment]
    token = _is_limited.set(True)
    try:
        yield
    finally:
        _is_limited.reset(token)


def _load_block_within_limits(exif: Image.Exif, data: bytes) -> None:
    if _is_limited.get() and len(data) > MAX_BLOCK_BYTES:
        data = b""  # no tags
    _load_block(exif, data)


def _load_directory_within_limits(directory: ImageFileDirectory_v2, fp: IO[bytes]) -> None:
    if _is_limited.get():
        # The directories of a TIFF are in the file itself, those of other images in a block.
        max_bytes = MAX_BLOCK_BYTES if isinstance(fp, BytesIO) else MAX_DIRECTORY_BYTES
        # Where the file ends, Pillow keeps the tags that it has: width and height come first.
        fp = bounded(fp, max_bytes)
    _load_directory(directory, fp)
