"""Contents on their way into a storage location, and out of it again."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any
from uuid import uuid4

from cms.config import Config
from cms.errors import Problem, Refused, invalid_payload
from cms.files import storage
from cms.files.derivatives import forget_derivatives
from cms.files.image_info import image_info_of
from cms.files.media_types import HEAD_BYTES, charset_of, is_allowed, media_type_of
from cms.files.names import clean_name, extension_on_disk
from cms.files.storage import Storages

log = logging.getLogger("cms.files")

REMOVAL_THREADS = 8  # a bucket takes its time for each

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Incoming:
    """A content that is being sent: the name and the media type that its sender gives it, and its bytes."""

    name: str
    declared: str | None
    chunks: Iterable[bytes]


@dataclass(frozen=True, slots=True)
class Content:
    """A content that is whole and in its location; `head` is how it begins, `name` is fit to be shown."""

    storage: str
    path: str
    size: int = 0
    sha256: str = ""
    name: str = ""
    declared: str | None = None
    head: bytes = b""

    @property
    def key(self) -> str:
        """The id that its file gets, unless the client names one."""
        return self.path.partition(".")[0]


class Contents:
    """What puts contents into the storage locations, within the limits of the settings, and removes them."""

    def __init__(self, config: Config) -> None:
        self.storages: Storages = storage.open(config)
        self.max_bytes = config.files_max_upload_size
        self._allowed = config.files_mime_type_allow_list

    def put(self, incoming: Incoming, location: str | None = None) -> Content:
        """Store a content under a name of its own; raises `Refused` CONTENT_TOO_LARGE, and then nothing stays."""
        target = self.storages.requested(location) if location else self.storages.default
        name, head = clean_name(incoming.name), bytearray()
        path = f"{uuid4()}{extension_on_disk(name)}"
        put = target.put(path, _limited(incoming.chunks, head, self.max_bytes))
        return Content(
            target.name, path, put.size, put.sha256, name, incoming.declared, bytes(head)
        )

    def move(self, content: Content, location: str) -> Content:
        """Return a content after it has been brought to another location."""
        target, source = self.storages.requested(location), self.storages[content.storage]
        target.put(content.path, source.get(content.path))
        self.remove([content])
        return replace(content, storage=location)

    def file_columns(self, content: Content, name: str) -> Json:
        """Return the columns of a file that its content decides; raises `Refused` for a type that is not allowed."""
        kind = media_type_of(content.head, name=name, declared=content.declared)
        if not is_allowed(kind, self._allowed):
            raise invalid_payload(f"Files of the type {kind} are not allowed", field="type")
        with self.storages[content.storage].reader(content.path) as reader:
            facts = image_info_of(reader, kind=kind, size=content.size)
        return {
            "storage": content.storage,
            "filename_disk": content.path,
            "filesize": content.size,
            "type": kind,
            "charset": charset_of(content.head, kind),
            "width": facts.width,
            "height": facts.height,
            "metadata": facts.metadata or None,
        }

    def remove(self, contents: Iterable[Content]) -> None:
        """Remove contents with what was derived from them; what cannot be removed now is left for the sweep."""
        with ThreadPoolExecutor(REMOVAL_THREADS) as threads:  # none is started for nothing
            for _ in threads.map(self._remove, contents):
                pass

    def _remove(self, content: Content) -> None:
        try:
            place = self.storages.existing(content.storage)
            place.delete([content.path])
            forget_derivatives(place, content.path)
        except Refused as refused:
            log.warning("%s stays in the storage %s: %s", content.path, content.storage, refused)

    @contextmanager
    def provisional(self) -> Iterator[list[Content]]:
        """Yield a list for the contents that are put inside; all of them are removed when it is refused.

        When the database is gone nobody can tell whether the rows are there: then the sweep decides later.
        """
        put: list[Content] = []
        try:
            yield put
        except Refused as refused:
            if refused.problems[0].extensions.get("service") != "database":
                self.remove(put)
            raise


def contents_of(rows: Sequence[tuple[Any, ...]]) -> list[Content]:
    """Return the contents of rows of an id, a storage and a name in it."""
    return [Content(str(name), str(path)) for _, name, path in rows if path]


def too_large(max_bytes: int) -> Refused:
    return Refused(
        Problem(
            "CONTENT_TOO_LARGE", f"The file is larger than {max_bytes} bytes.", {"limit": max_bytes}
        )
    )


def _limited(chunks: Iterable[bytes], head: bytearray, max_bytes: int) -> Iterator[bytes]:
    """Pass chunks on, keep how they begin, and refuse what is more than `max_bytes` bytes in all."""
    size = 0
    for chunk in chunks:
        size += len(chunk)
        if size > max_bytes:
            raise too_large(max_bytes)
        if len(head) < HEAD_BYTES:
            head += chunk[: HEAD_BYTES - len(head)]
        yield chunk
