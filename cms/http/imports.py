"""/utils/import: files of items, received in full before anything is written (docs/import.md)."""

from __future__ import annotations

from collections.abc import Iterator
from hashlib import sha256
from pathlib import PurePath
from tempfile import TemporaryFile
from typing import BinaryIO, NamedTuple

import falcon

from cms.errors import Problem, Refused, invalid_payload
from cms.files.contents import too_large
from cms.files.media_types import without_parameters
from cms.files.storage import CHUNK_BYTES
from cms.files.upload_form import FormPart, second_file, unknown_part
from cms.http.requests.form import form_parts, is_form
from cms.http.requests.media import idempotency_key_of
from cms.http.requests.request import Request
from cms.import_formats import IMPORT_FORMAT_BY_MEDIA_TYPE, IMPORT_FORMAT_BY_SUFFIX
from cms.items.transfer.imports import Upload, import_file, require_import
from cms.store.store import Store


class ImportResource:
    """Imports a file; no row of it may exceed `max_row_bytes`, nor the file `max_bytes`."""

    def __init__(self, store: Store, max_row_bytes: int, max_bytes: int) -> None:
        self._store = store
        self._max_row_bytes = max_row_bytes
        self._max_bytes = max_bytes

    def on_post(self, request: Request, response: falcon.Response, collection: str) -> None:
        """Write the rows of a CSV, JSON or JSONL file; answer how many were created and updated."""
        identity = request.identity
        # Before the file is received: a caller who may not import need not send it.
        require_import(self._store, identity, collection)
        # On disk and not in memory: an import may be far larger than a body of JSON.
        with TemporaryFile() as file:
            upload = self._receive(request, file)
            response.data = import_file(
                self._store, identity, collection, upload, idempotency=idempotency_key_of(request)
            )

    def _receive(self, request: Request, file: BinaryIO) -> Upload:
        """Store what was sent in `file`; raises `Refused` for anything but an import."""
        if is_form(request):
            sent = _sent_in_form(form_parts(request, max_bytes=self._max_bytes))
        else:
            sent = _sent_as_body(request, self._max_bytes)
        # Of the file alone: the boundary of a form differs at each attempt.
        digest = sha256()
        size = 0
        for chunk in sent.chunks:
            size += len(chunk)
            if size > self._max_bytes:
                raise too_large(self._max_bytes)
            digest.update(chunk)
            file.write(chunk)
        request.digest = digest.digest()
        return Upload(sent.file_format, file, self._max_row_bytes, sent.charset)


class _SentFile(NamedTuple):
    """A file while it is received."""

    file_format: str
    charset: str | None
    chunks: Iterator[bytes]


def _sent_as_body(request: Request, max_bytes: int) -> _SentFile:
    file_format = _file_format("", request.content_type)
    charset = _charset(request.content_type)
    return _SentFile(file_format, charset, _body_chunks(request, max_bytes))


def _sent_in_form(parts: Iterator[FormPart]) -> _SentFile:
    """Return the form's only file; its chunks go on to the end of the form."""
    part = next(parts, None)
    if part is None:
        raise invalid_payload('The form has no file in a part named "file"', field="file")
    if part.name != "file":
        raise unknown_part(part.name)
    suffix = PurePath(part.filename or "").suffix.lower()
    file_format = _file_format(suffix, part.declared_type)
    return _SentFile(file_format, _charset(part.declared_type), _only_file(part, parts))


def _only_file(part: FormPart, other_parts: Iterator[FormPart]) -> Iterator[bytes]:
    yield from part.chunks
    # So that the body is read to its end.
    for other in other_parts:
        raise second_file() if other.name == "file" else unknown_part(other.name)


def _body_chunks(request: Request, max_bytes: int) -> Iterator[bytes]:
    """Yield the chunks of the body; raises `Refused` where it breaks off or is too long."""
    if (request.content_length or 0) > max_bytes:
        raise too_large(max_bytes)
    yield from iter(lambda: request.stream.read(CHUNK_BYTES), b"")


def _charset(content_type: str | None) -> str | None:
    _, parameters = falcon.parse_header(content_type or "")
    return parameters.get("charset")


def _file_format(suffix: str, content_type: str | None) -> str:
    """Return the format by suffix, else by type: programs often only guess the type."""
    media_type = without_parameters(content_type)
    file_format = IMPORT_FORMAT_BY_SUFFIX.get(suffix) or IMPORT_FORMAT_BY_MEDIA_TYPE.get(media_type)
    if file_format is None:
        media_types = ", ".join(IMPORT_FORMAT_BY_MEDIA_TYPE)
        message = f"An import is one of {media_types}, or a form with a file that is."
        raise Refused(Problem("UNSUPPORTED_MEDIA_TYPE", message))
    return file_format
