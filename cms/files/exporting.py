"""Exports of items that become files: POST /utils/export/{collection} (docs/import.md)."""

from __future__ import annotations

from collections.abc import Mapping

from cms.errors import abbreviated, invalid_payload
from cms.files import file_rows
from cms.files.contents import FieldValues, ReceivedContent
from cms.files.file_payloads import pop_location, require_text
from cms.files.file_rows import WriteRequest
from cms.files.files import create_file
from cms.files.media_library import MediaLibrary
from cms.items.read.prepare import ReadRequest
from cms.items.transfer.export import export
from cms.schema.system import FILES


def export_to_file(
    library: MediaLibrary, request: WriteRequest, collection: str, payload: Mapping[str, object]
) -> None:
    """Create a file with the items of `query` in `format`, and with the fields of `file`.

    Raises `Refused` as a read of the items does, and as an upload.
    """
    file_rows.require_permission(library.store, request.identity, collection=FILES, action="create")
    file_format = require_text(payload.get("format"), field="format")
    query = _object(payload, "query")
    fields: FieldValues = dict(_object(payload, "file"))
    # A repeated call must not read everything again.
    if library.store.stored_answer(request.identity, request.idempotency) is not None:
        return
    location = pop_location(fields)
    exported = export(
        library.store,
        request.identity,
        ReadRequest(collection, params=query),
        file_format=file_format,
    )
    # The export is streamed from the database into the location: its size does not matter.
    received = ReceivedContent(exported.filename, exported.media_type, exported.chunks)
    create_file(library, request, received, location, fields)


def _object(payload: Mapping[str, object], key: str) -> dict[str, object]:
    value = payload.get(key)
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise invalid_payload(f'"{key}" must be an object', field=key, value=abbreviated(value))
    return value
