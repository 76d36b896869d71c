"""Files from other servers: POST /files/import (docs/files.md)."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import cast
from urllib.parse import unquote, urlsplit

from cms.errors import (
    Refused,
    abbreviated,
    invalid_payload,
    refuse_unknown_members,
    unavailable,
)
from cms.files import file_rows
from cms.files.contents import FieldValues, ReceivedContent, too_large
from cms.files.file_payloads import pop_location, require_text
from cms.files.file_rows import WriteRequest
from cms.files.files import create_file
from cms.files.media_library import MediaLibrary
from cms.outgoing.outgoing_addresses import AddressDenied
from cms.outgoing.outgoing_requests import (
    FetchError,
    FetchLimits,
    OutgoingRequest,
    OutgoingResponse,
    ResponseTooLarge,
    fetch,
)
from cms.schema.system import FILES

# filename*=UTF-8'en'na%C3%AFve.txt
_ENCODED_NAME = re.compile(r"filename\*\s*=\s*utf-8'[^']*'([^;]+)", re.IGNORECASE)
# filename="a \"b\".txt", or filename=a.txt without quotes.
_PLAIN_NAME = re.compile(r'filename\s*=\s*(?:"((?:[^"\\]|\\.)*)"|([^;\s]+))', re.IGNORECASE)


def import_url(
    library: MediaLibrary, request: WriteRequest, payload: Mapping[str, object]
) -> bytes | None:
    """Create a file with the content at an address, and with the fields of `data`.

    Raises `Refused`: INVALID_PAYLOAD for an address that the settings deny, SERVICE_UNAVAILABLE
    when the other server fails.
    """
    file_rows.require_permission(library.store, request.identity, collection=FILES, action="create")
    refuse_unknown_members(payload, ("url", "data"))
    url = require_text(payload.get("url"), field="url")
    fields = payload.get("data") or {}
    if not isinstance(fields, Mapping):
        raise invalid_payload('"data" must be an object', field="data", value=abbreviated(fields))
    # A repeated call must not fetch the content again.
    stored_answer = library.store.stored_answer(request.identity, request.idempotency)
    if stored_answer is not None:
        return cast(bytes | None, stored_answer.answer)
    limits = FetchLimits(library.import_seconds, library.contents.max_bytes)
    try:
        with fetch(OutgoingRequest(url), library.address_filter, limits=limits) as answer:
            return _store_response(library, request, answer, dict(fields))
    except AddressDenied as denied:
        raise invalid_payload(
            f'"url" cannot be imported: {denied}', field="url", value=abbreviated(url)
        ) from None
    except FetchError as failed:
        raise _source_failed(str(failed)) from None
    except ResponseTooLarge:
        raise too_large(library.contents.max_bytes) from None


def _store_response(
    library: MediaLibrary, request: WriteRequest, answer: OutgoingResponse, fields: FieldValues
) -> bytes | None:
    # A page of an error is not the file.
    if not 200 <= answer.status < 300:
        raise _source_failed(f"it answers with the status {answer.status}")
    location = pop_location(fields)
    received = ReceivedContent(
        _filename_of(answer), answer.headers.get("content-type"), answer.chunks
    )
    return create_file(library, request, received, location, fields)


def _source_failed(reason: str) -> Refused:
    return unavailable("import source", reason[:1].upper() + reason[1:])


def _filename_of(answer: OutgoingResponse) -> str:
    """Return the name in the answer's headers, else the last part of its path, else its host."""
    for name in _disposition_names(answer.headers.get("content-disposition", "")):
        if name:
            return name
    # The last address counts: a link for downloads often redirects to one with the file's name.
    address = urlsplit(answer.url)
    last_part = unquote(address.path.rstrip("/").rpartition("/")[2])
    return last_part or address.hostname or "file"


def _disposition_names(disposition: str) -> Iterator[str]:
    """Yield the names of a Content-Disposition header, the one in UTF-8 first (RFC 6266)."""
    encoded_name = _ENCODED_NAME.search(disposition)
    if encoded_name:
        yield unquote(encoded_name[1].strip())
    plain_name = _PLAIN_NAME.search(disposition)
    if plain_name:
        # In quotes a backslash stands before every character that is meant as it is.
        yield re.sub(r"\\(.)", r"\1", plain_name[1] or plain_name[2] or "")
