"""/utils/import: files of items, received whole before anything is written (docs/import.md)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from hashlib import sha256
from pathlib import PurePath
from tempfile import TemporaryFile
from types import MappingProxyType
from typing import BinaryIO

import falcon

from cms.errors import Problem, Refused, invalid_payload
from cms.files.contents import too_large
from cms.files.form import Part
from cms.http.form import is_form, parts
from cms.http.media import once_of
from cms.store.imports import Upload, import_file, require_import
from cms.store.store import Store

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
        if is_form(request):
            form, chunks = _file_of(parts(request, most=self._most))
        else:
            form, chunks = _form("", request.content_type), _body(request, self._most)
        digest, size = sha256(), 0
        for chunk in chunks:
            size += len(chunk)
            if size > self._most:
                raise too_large(self._most)
            digest.update(chunk)
            file.write(chunk)
        request.context.digest = digest.digest()
        return form


def _file_of(found: Iterator[Part]) -> tuple[str, Iterator[bytes]]:
    """Return the form of the one file in a form, and its bytes; when these end, so must the form."""
    part = next((part for part in found if part.name == "file"), None)
    if part is None:
        raise invalid_payload('The form has no file in a part named "file"', field="file")
    return _form(PurePath(part.filename or "").suffix.lower(), part.declared), _alone(part, found)


def _alone(part: Part, others: Iterator[Part]) -> Iterator[bytes]:
    yield from part.chunks
    if any(other.name == "file" for other in others):
        raise invalid_payload("The form has more than one file", field="file")


def _body(request: falcon.Request, most: int) -> Iterator[bytes]:
    """Yield the body itself; raises `Refused` where it breaks off, or could not fit."""
    if (request.content_length or 0) > most:
        raise too_large(most)
    yield from iter(lambda: request.stream.read(_CHUNK), b"")


def _form(suffix: str, content_type: str | None) -> str:
    """A name tells more than a type, which programs often only guess."""
    media = (content_type or "").partition(";")[0].strip().lower()
    found = _BY_NAME.get(suffix) or _BY_TYPE.get(media)
    if found is None:
        message = f"An import is one of {', '.join(_BY_TYPE)}, or a form with a file that is."
        raise Refused(Problem("UNSUPPORTED_MEDIA_TYPE", message))
    return found
