"""Files from elsewhere: POST /files/import (specification, section 4.8; decisions, section 7)."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import cast
from urllib.parse import unquote, urlsplit

from cms.errors import Refused, abbreviated, invalid_payload, unavailable
from cms.files import records
from cms.files.contents import Incoming, Json, too_large
from cms.files.files import Library, create_rows
from cms.files.form import FileUpload
from cms.files.records import FILES, WriteRequest
from cms.outgoing import (
    AddressDenied,
    FetchError,
    FetchLimits,
    OutgoingRequest,
    OutgoingResponse,
    ResponseTooLarge,
    fetch,
)


def import_url(
    library: Library, request: WriteRequest, payload: Mapping[str, object]
) -> bytes | None:
    """Create a file of what an address answers, with what `data` says of it.

    Raises `Refused`: INVALID_PAYLOAD for an address that may not be asked, SERVICE_UNAVAILABLE when it fails.
    """
    records.require_permission(library.store, request.identity, FILES, "create")
    url, said = payload.get("url"), payload.get("data") or {}
    if not isinstance(url, str):
        raise invalid_payload('"url" must be a text', field="url", value=abbreviated(url))
    if not isinstance(said, Mapping):
        raise invalid_payload('"data" must be an object', field="data", value=abbreviated(said))
    stored_answer = library.store.stored_answer(request.identity, request.idempotency)
    if stored_answer is not None:
        return cast(bytes | None, stored_answer.answer)
    limits = FetchLimits(library.import_seconds, library.contents.max_bytes)
    try:
        with fetch(OutgoingRequest(url), library.address_filter, limits=limits) as answer:
            return _store_response(library, request, answer, dict(said))
    except AddressDenied as denied:
        raise invalid_payload(
            f'"url" cannot be imported: {denied}', field="url", value=abbreviated(url)
        ) from None
    except FetchError as failed:
        raise _source_failed(str(failed)) from None
    except ResponseTooLarge:
        raise too_large(library.contents.max_bytes) from None


def _store_response(
    library: Library, request: WriteRequest, answer: OutgoingResponse, said: Json
) -> bytes | None:
    if not 200 <= answer.status < 300:
        raise _source_failed(f"it answers with the status {answer.status}")
    location = said.pop("storage", None)
    if location is not None and not isinstance(location, str):
        raise invalid_payload(
            '"storage" must be a text', field="storage", value=abbreviated(location)
        )
    incoming = Incoming(_filename_of(answer), answer.headers.get("content-type"), answer.chunks)
    with library.contents.provisional() as put:
        put.append(library.contents.put(incoming, location))
        return create_rows(library, request, [FileUpload(put[0], said)])


def _source_failed(reason: str) -> Refused:
    return unavailable("import source", reason[:1].upper() + reason[1:])


def _filename_of(answer: OutgoingResponse) -> str:
    """Return the name that the source gives, else the last part of its path, else its host."""
    said = answer.headers.get("content-disposition", "")
    parts = urlsplit(answer.url)
    return next(
        filter(
            None,
            (
                *_disposition_names(said),
                unquote(parts.path.rstrip("/").rpartition("/")[2]),
                parts.hostname,
            ),
        ),
        "file",
    )


def _disposition_names(disposition: str) -> Iterator[str]:
    if found := re.search(r"filename\*\s*=\s*utf-8'[^']*'([^;]+)", disposition, re.IGNORECASE):
        yield unquote(found[1].strip())
    if found := re.search(
        r'filename\s*=\s*(?:"((?:[^"\\]|\\.)*)"|([^;\s]+))', disposition, re.IGNORECASE
    ):
        yield re.sub(r"\\(.)", r"\1", found[1] or found[2] or "")
