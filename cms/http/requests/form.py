"""Multipart forms, read part by part as they come in."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from io import BytesIO

import falcon
from falcon.media.multipart import (
    BodyPart,
    MultipartForm,
    MultipartParseError,
    MultipartParseOptions,
)
from falcon.util import BufferedReader

from cms.errors import Refused, invalid_payload
from cms.files.contents import too_large
from cms.files.media_types import without_parameters
from cms.files.storage import CHUNK_BYTES
from cms.files.upload_form import FormPart
from cms.http.requests.request import Request

MAX_FORM_PARTS = 1000
MAX_BOUNDARY_LENGTH = 70
"""In characters (RFC 2046, section 5.1.1)."""

MAX_OVERHEAD_BYTES = 2**20
"""The bytes of a form beside its files: fields, names and boundaries."""


def is_form(request: Request) -> bool:
    """Tell whether the body is a multipart form."""
    return without_parameters(request.content_type) == falcon.MEDIA_MULTIPART


def form_parts(request: Request, *, max_bytes: int) -> Iterator[FormPart]:
    """Return the parts of a form whose files may have `max_bytes` bytes in all.

    Raises `Refused`: CONTENT_TOO_LARGE, before anything is read where the request announces its
    length; INVALID_PAYLOAD for a form that is malformed or breaks off.
    """
    length = request.content_length
    if length is not None and length > max_bytes + MAX_OVERHEAD_BYTES:
        raise too_large(max_bytes)
    # An announced length is the limit by itself: more bytes than announced are never read.
    limit = length
    if limit is None:
        limit = max_bytes + MAX_OVERHEAD_BYTES
    # One byte more than allowed tells a body that is too large from one that just fits.
    return _parts(request, _reader(request, limit), limit)


def parts_of(request: Request, raw: bytes) -> Iterator[FormPart]:
    """Yield the parts of a form that has been read; raises as `form_parts` does."""
    return _parts(request, BytesIO(raw).read, len(raw))


def _parts(request: Request, read: Callable[[int], bytes], limit: int) -> Iterator[FormPart]:
    stream = BufferedReader(read, limit + 1, CHUNK_BYTES)
    options = MultipartParseOptions()
    options.max_body_part_count = MAX_FORM_PARTS
    form = MultipartForm(stream, _boundary(request), limit, options)
    try:
        # The caller reads a part before it takes the next one: parts share one stream, and nothing
        # is kept.
        for part in form:
            yield _part(part)
        # Bytes behind the last boundary mean nothing, but they belong to the body.
        while stream.read(CHUNK_BYTES):
            pass
    except (MultipartParseError, ValueError) as error:
        raise _malformed(getattr(error, "description", None)) from None


def _part(part: BodyPart) -> FormPart:
    if not part.name:
        raise invalid_payload("A part of the form has no name")
    try:
        media_type = part.content_type
    except UnicodeDecodeError:
        # The type is only a claim of the client's, so an unreadable one counts as none.
        media_type = None
    return FormPart(
        # The media type is what the client claims; cms/files looks at the content itself.
        part.name,
        part.filename,
        media_type,
        iter(lambda: part.stream.read(CHUNK_BYTES), b""),
    )


def _boundary(request: Request) -> bytes:
    _, options = falcon.parse_header(request.content_type or "")
    try:
        boundary = options.get("boundary", "").encode("ascii")
    except UnicodeEncodeError:
        boundary = b""
    if not 0 < len(boundary) <= MAX_BOUNDARY_LENGTH:
        raise invalid_payload("The header Content-Type names no boundary of the form")
    return boundary


def _reader(request: Request, limit: int) -> Callable[[int], bytes]:
    """Return a function that reads the body.

    Only a body without an announced length can exceed the limit.
    """
    bytes_read = 0

    def read(size: int) -> bytes:
        nonlocal bytes_read
        chunk: bytes = request.stream.read(size)
        bytes_read += len(chunk)
        if bytes_read > limit:
            raise too_large(limit)
        return chunk

    return read


def _malformed(reason: str | None = None) -> Refused:
    if not reason:
        return invalid_payload("The form breaks off")
    return invalid_payload(f"The form cannot be read: {reason}")
