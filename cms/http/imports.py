"""/utils/import: files of items, received whole before anything is written (docs/import.md)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from hashlib import sha256
from pathlib import PurePath
from tempfile import TemporaryFile
from types import MappingProxyType
from typing import BinaryIO

import falcon
from falcon.media.multipart import MultipartForm, MultipartParseError, MultipartParseOptions
from falcon.util import BufferedReader

from cms.errors import Problem, Refused, invalid_payload
from cms.http.media import once_of, stream_of, too_large
from cms.store.imports import Upload, import_file, require_import
from cms.store.store import Store

Read = Callable[[int], bytes]

_CHUNK = 1 << 18

_BY_NAME: Mapping[str, str] = MappingProxyType({".csv": "csv", ".json": "json", ".jsonl": "jsonl", ".ndjson": "jsonl"})
_BY_TYPE: Mapping[str, str] = MappingProxyType(
    {
        "text/csv": "csv",
        "application/json": "json",
        "application/x-ndjson": "jsonl",
        "application/jsonl": "jsonl",
    }
)


class Import:
    """Items of a file; `most_row` bytes are the largest row of it, `most` the largest file."""

    def __init__(self, store: Store, most_row: int, most: int) -> None:
        self._store = store
        self._most_row = most_row
        self._most = most

    def on_post(self, request: falcon.Request, response: falcon.Response, collection: str) -> None:
        """Write the rows of a CSV, JSON or JSONL file, and answer how many were created and updated."""
        identity = request.context.identity
        require_import(self._store, identity, collection)
        with TemporaryFile() as file:
            form = self._receive(request, file)
            upload = Upload(form, file, self._most_row)
            response.data = import_file(self._store, identity, collection, upload, once=once_of(request))

    def _receive(self, request: falcon.Request, file: BinaryIO) -> str:
        """Take the file into the temporary one, and return its form; raises `Refused` for what is no such file."""
        body, media = _Body(request, self._most), _media(request.content_type)
        if media == "multipart/form-data":
            form, request.context.digest = _file_of_form(body, request.content_type or "", file)
        else:
            form = _form("", media)
            request.context.digest = _copied(body.read, file)
        return form


class _Body:
    """The body of a request, as it comes in: all of it, or `Refused`."""

    def __init__(self, request: falcon.Request, most: int) -> None:
        self._stream = stream_of(request)
        self._length = request.content_length
        self._seen = 0
        self.most = most
        if (self._length or 0) > most:
            raise too_large(most)

    def read(self, size: int) -> bytes:
        """Return the next bytes, none at the end."""
        left = size if self._length is None else min(size, self._length - self._seen)
        try:
            chunk: bytes = self._stream.read(left)
        except Exception:  # each server has its own way to say that the client is gone
            raise _broken() from None
        self._seen += len(chunk)
        if self._seen > self.most:
            raise too_large(self.most)
        if left and not chunk and self._length is not None:
            raise _broken()
        return chunk


def _copied(read: Read, file: BinaryIO) -> bytes:
    """Copy what is read, and return its digest."""
    digest = sha256()
    while chunk := read(_CHUNK):
        digest.update(chunk)
        file.write(chunk)
    return digest.digest()


def _file_of_form(body: _Body, content_type: str, file: BinaryIO) -> tuple[str, bytes]:
    """Copy the file of a form, and return its form and its digest."""
    boundary = falcon.parse_header(content_type)[1].get("boundary", "").encode()
    if not 1 <= len(boundary) <= 70:
        raise invalid_payload("The header Content-Type names no boundary of the form")
    stream = BufferedReader(body.read, body.most + 1, _CHUNK)
    found: list[tuple[str, bytes]] = []
    try:
        for part in MultipartForm(stream, boundary, body.most, MultipartParseOptions()):
            if part.name == "file":
                form = _form(PurePath(part.filename or "").suffix.lower(), _media(part.content_type))
                found.append((form, _copied(part.stream.read, file)))
    except (MultipartParseError, ValueError):
        raise invalid_payload("The form cannot be read") from None
    if len(found) != 1:
        raise invalid_payload('The form has one file, in a part named "file"', field="file")
    return found[0]


def _broken() -> Refused:
    return invalid_payload("The body breaks off")


def _form(suffix: str, media: str) -> str:
    """A name tells more than a type, which programs often only guess."""
    found = _BY_NAME.get(suffix) or _BY_TYPE.get(media)
    if found is None:
        message = f"An import is one of {', '.join(_BY_TYPE)}, or a form with a file that is."
        raise Refused(Problem("UNSUPPORTED_MEDIA_TYPE", message))
    return found


def _media(content_type: str | None) -> str:
    return (content_type or "").partition(";")[0].strip().lower()
