"""Contents on their way into a storage location, and out of it again.

A process may be killed between content and row, and a disk may be restored from an older copy; no
care in a request can prevent that. `cms maintain` looks for contents that belong to no file, and
for files without a content (`sweep`).
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from itertools import islice
from typing import Any
from uuid import uuid4

from cms.config import Config
from cms.database.connections import Fetch, Transaction, single_value, single_values
from cms.database.statements import statement
from cms.errors import Problem, Refused, invalid_payload
from cms.files.derivatives import forget_derivatives
from cms.files.file_names import EXTENSION_ON_DISK, clean_name, extension_on_disk
from cms.files.image_job import ImageInfo
from cms.files.image_pool import ImagePool
from cms.files.media_types import HEAD_BYTES, MARKUP, charset_of, is_allowed, media_type_of
from cms.files.storage import Storage, Storages
from cms.files.stored_content import local_file
from cms.text_shapes import UUID

log = logging.getLogger("cms.files")

MAX_IMAGE_HEAD_BYTES = 8 * 2**20
"""Bytes of an image in a bucket that are fetched to read its size and metadata."""

READ_WHOLE = frozenset({"image/webp", "image/avif", "image/tiff"})
"""Types of images whose size or metadata may stand behind the pixels."""

REMOVAL_THREADS = 8
"""Contents that are removed at the same time: a bucket takes a request for each."""

FieldValues = dict[str, Any]
"""Values of the fields of a file or folder, as JSON has them."""


@dataclass(frozen=True, slots=True)
class ReceivedContent:
    """A content that arrives: its bytes, and the name and media type that its sender declares."""

    name: str
    declared_type: str | None
    chunks: Iterable[bytes]


@dataclass(frozen=True, slots=True)
class Content:
    """A content in its location; `head` are its first bytes, `name` is its cleaned name."""

    storage: str
    path: str
    size: int = 0
    sha256: str = ""
    name: str = ""
    declared_type: str | None = None
    head: bytes = b""

    @property
    def key(self) -> str:
        """The id of the content's file, unless the client names one."""
        # The path is <uuid>.<extension>, and that UUID is the id of a new file.
        return self.path.partition(".")[0]


class Contents:
    """Stores contents in their locations, within the limits of the settings, and removes them."""

    def __init__(self, config: Config, image_pool: ImagePool) -> None:
        self.storages = Storages.from_config(config)
        self._image_pool = image_pool
        self.max_bytes = config.files_max_upload_size
        self._allowed = config.files_mime_type_allow_list

    def put(
        self, received: ReceivedContent, location: str | None = None, *, bytes_before: int = 0
    ) -> Content:
        """Store a content under a new path.

        The call has stored `bytes_before` bytes of other contents, which count towards its limit.
        Raises `Refused` CONTENT_TOO_LARGE, and then nothing is stored.
        """
        target = self.storages.requested(location) if location else self.storages.default
        name = clean_name(received.name)
        # Each content has a path of its own: its tag and its derivatives go by the path.
        path = f"{uuid4()}{extension_on_disk(name)}"
        # Filled by `_limited` while the storage reads the chunks: the type is recognised without a
        # second read.
        head = bytearray()
        result = target.put(path, self._limited(received.chunks, head, bytes_before))
        return Content(
            target.name,
            path,
            size=result.size,
            sha256=result.sha256,
            name=name,
            declared_type=received.declared_type,
            head=bytes(head),
        )

    def move(self, content: Content, location: str) -> Content:
        """Move a content to another location, and return it as it is there."""
        target = self.storages.requested(location)
        source = self.storages[content.storage]
        target.put(content.path, source.get(content.path))
        # Only now: a move that fails half-way leaves the content where it was.
        self.remove([content])
        return replace(content, storage=location)

    def file_columns(self, content: Content, name: str) -> FieldValues:
        """Return the columns of a file that its content decides.

        Raises `Refused` INVALID_PAYLOAD for a media type that is not allowed.
        """
        # The name of the file, which may differ from the name that was sent.
        media_type = media_type_of(content.head, name=name, declared=content.declared_type)
        if not is_allowed(media_type, self._allowed):
            raise invalid_payload(f"Files of the type {media_type} are not allowed", field="type")
        image = self._image_info(content, media_type)
        return {
            "storage": content.storage,
            "filename_disk": content.path,
            "filesize": content.size,
            "type": media_type,
            "charset": charset_of(content.head, media_type),
            "width": image.width,
            "height": image.height,
            "metadata": image.metadata or None,
        }

    def _image_info(self, content: Content, media_type: str) -> ImageInfo:
        """Return the facts about a content; they are empty if it is no readable image."""
        if not media_type.startswith("image/") or media_type in MARKUP:
            return ImageInfo()
        max_bytes = content.size
        if media_type not in READ_WHOLE:
            max_bytes = min(max_bytes, MAX_IMAGE_HEAD_BYTES)
        storage = self.storages[content.storage]
        with local_file(storage, content.path, max_bytes=max_bytes) as path:
            return self._image_pool.read(path)

    def remove(self, contents: Iterable[Content]) -> None:
        """Remove contents and their derivatives; what stays behind, `sweep` removes later."""
        # The pool starts no thread while there is nothing to remove.
        with ThreadPoolExecutor(REMOVAL_THREADS) as threads:
            # The results are awaited, because an error would be lost otherwise.
            for _ in threads.map(self._remove, contents):
                pass

    def _remove(self, content: Content) -> None:
        try:
            storage = self.storages.existing(content.storage)
            storage.delete([content.path])
            forget_derivatives(storage, content.path)
        except Refused as refused:
            log.warning("%s stays in the storage %s: %s", content.path, content.storage, refused)

    def _limited(
        self, chunks: Iterable[bytes], head: bytearray, bytes_before: int
    ) -> Iterator[bytes]:
        """Yield chunks and copy their first bytes to `head`; refuse what is over the limit."""
        size = bytes_before
        for chunk in chunks:
            size += len(chunk)
            if size > self.max_bytes:
                raise too_large(self.max_bytes)
            if len(head) < HEAD_BYTES:
                head += chunk[: HEAD_BYTES - len(head)]
            yield chunk

    @contextmanager
    def provisional(self) -> Iterator[list[Content]]:
        """Yield a list for the contents that a call stores; a refused call removes them."""
        stored: list[Content] = []
        try:
            yield stored
        except Refused as refused:
            problem = refused.problems[0]
            # If the database fails, the rows may or may not be there: `sweep` finds out later.
            if problem.is_undone or problem.extensions.get("service") != "database":
                self.remove(stored)
            raise


def are_kept(fetch: Fetch) -> bool:
    """Tell whether a backup runs, which needs the contents that were there when it began."""
    return bool(single_value(fetch(statement("are_contents_kept"), ())))


def contents_of(rows: Sequence[tuple[Any, ...]]) -> list[Content]:
    """Return the contents of rows that hold an id, a storage location and a path in it."""
    # Rows that other programs wrote may have no content.
    return [Content(str(storage), str(path)) for _, storage, path in rows if path]


def too_large(max_bytes: int) -> Refused:
    sentence = f"The file is larger than {max_bytes} bytes."
    return Refused(Problem("CONTENT_TOO_LARGE", sentence, {"limit": max_bytes}))


MIN_AGE = timedelta(days=1)
"""Longer than any request or transfer takes."""

BATCH = 1000

# The names that `Contents.put` gives, `<uuid>.<extension>`, and those of derivatives,
# `<uuid>__/<key>.<format>`.
_CONTENT = re.compile(rf"{UUID}{EXTENSION_ON_DISK}")
_DERIVED = re.compile(rf"({UUID})(?:__|/).+", re.DOTALL)


@dataclass(frozen=True, slots=True)
class SweepResult:
    """The contents that a sweep removed, as `location/path`, and the ids of files without one."""

    removed: tuple[str, ...] = ()
    without_content: tuple[str, ...] = ()


def sweep(transaction: Transaction, storages: Storages, *, age: timedelta = MIN_AGE) -> SweepResult:
    """Remove contents older than `age` that no file has, and return the files that have none.

    Names that this service does not give are left alone: a location may hold other things too.
    While a backup runs, which may need them, all contents stay.
    Raises `Refused` SERVICE_UNAVAILABLE when a location does not answer.
    """
    removed: list[str] = []
    without_content: list[str] = []
    transaction.execute(statement("create_seen_contents"))
    for storage in storages.values():
        _record_contents(transaction, storage, before=datetime.now(UTC) - age)
        parameters = (storage.name, f"{age.total_seconds()} seconds")
        rows = transaction.execute(statement("find_files_without_content"), parameters)
        without_content += single_values(rows)
        # Old ones only: a request may be about to write the row of a new content.
        rows = transaction.execute(statement("find_stray_contents"), (storage.name,))
        strays = single_values(rows)
        # Asked after the strays were found: a backup that begins now needs none of them.
        if are_kept(transaction.execute):
            strays = []
        storage.delete(strays)
        for path in (*strays, *storage.remove_staged(age)):
            removed.append(f"{storage.name}/{path}")
    return SweepResult(tuple(removed), tuple(without_content))


def _record_contents(transaction: Transaction, storage: Storage, *, before: datetime) -> None:
    """Write the contents of a location into a temporary table, a batch at a time."""
    transaction.execute(statement("empty_seen_contents"))
    # A generator: a location may hold millions of contents.
    contents = (content for content in storage.list() if _is_ours(content.path))
    while batch := list(islice(contents, BATCH)):
        paths: list[str] = []
        stems: list[str | None] = []
        are_old: list[str] = []
        for content in batch:
            paths.append(content.path)
            stems.append(_content_stem(content.path))
            # As PostgreSQL writes booleans: the elements of an array are sent as texts.
            are_old.append(str(content.modified < before).lower())
        transaction.execute(statement("add_seen_contents"), (paths, stems, are_old))


def _is_ours(path: str) -> bool:
    """Tell whether this service gives contents or derivatives such names."""
    return bool(_CONTENT.fullmatch(path) or _DERIVED.fullmatch(path))


def _content_stem(path: str) -> str | None:
    """Return the stem of the content from which a path was derived; None for a content itself."""
    match = _DERIVED.fullmatch(path)
    if match is None:
        return None
    return match[1]
