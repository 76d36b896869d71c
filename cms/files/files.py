"""Files: rows of system_files whose contents lie in storage locations (docs/files.md).

A content is stored before its row is written, and removed after it: no row is without its content.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace as replaced
from hashlib import sha256

from cms import jsontext
from cms.database.connections import single_value
from cms.database.statements import statement
from cms.errors import abbreviated, invalid_payload
from cms.files import file_rows
from cms.files.contents import Content, Contents, FieldValues, ReceivedContent, contents_of
from cms.files.file_names import title_of
from cms.files.file_payloads import (
    checked_changes,
    checked_fields,
    decode_base64,
    pop_location,
    require_text,
)
from cms.files.file_rows import NewRow, WriteRequest
from cms.files.media_library import LibraryCalls, MediaLibrary
from cms.files.upload_form import FileUpload, FormPart, receive, second_file
from cms.items.read.prepare import ReadRequest
from cms.items.read.reads import parse_key
from cms.items.transfer.export import export
from cms.items.write.calls import WriteCall
from cms.schema.system import FILES


def upload(library: MediaLibrary, request: WriteRequest, parts: Iterable[FormPart]) -> bytes | None:
    """Create the files of a form, and return one file, or several as an array.

    Returns None to a caller that may not read files.
    """
    file_rows.require_permission(library.store, request.identity, collection=FILES, action="create")
    with library.contents.provisional() as stored:
        # The body ends here, long before the transaction begins: a slow client holds no connection.
        uploads = receive(library.contents, parts, stored, max_bytes=library.max_field_bytes)
        return _create_rows(library, _with_content_digest(request, uploads), uploads)


def upload_json(
    library: MediaLibrary, request: WriteRequest, payload: Mapping[str, object]
) -> bytes | None:
    """Create a file of a JSON body, whose `data` is the content in base64."""
    file_rows.require_permission(library.store, request.identity, collection=FILES, action="create")
    fields: FieldValues = dict(payload)
    raw = decode_base64(fields.pop("data", None))
    name = fields.get("filename_download")
    if not isinstance(name, str) or not name:
        raise invalid_payload(
            '"filename_download" must be a text', field="filename_download", value=abbreviated(name)
        )
    location = pop_location(fields)
    # JSON declares no media type: the name and the first bytes decide.
    return create_file(library, request, ReceivedContent(name, None, [raw]), location, fields)


def create_file(
    library: MediaLibrary,
    request: WriteRequest,
    received: ReceivedContent,
    location: str | None,
    fields: FieldValues,
) -> bytes | None:
    """Store a content in a location, and create its file with these fields."""
    with library.contents.provisional() as stored:
        content = library.contents.put(received, location)
        stored.append(content)
        return _create_rows(library, request, [FileUpload(content, fields)])


def _create_rows(
    library: MediaLibrary, request: WriteRequest, uploads: Sequence[FileUpload]
) -> bytes | None:
    """Write the rows of contents that are stored.

    A call that its Idempotency-Key shows to have been done before writes none; its contents are
    removed again.
    """
    rows = [_new_row(library.contents, upload) for upload in uploads]
    write = library.new_write(request)
    for attempt in write:
        with attempt as context:
            call = FILE_CALLS.call(library, request, attempt, context, "create")
            folder = single_value(context.fetch(statement("find_default_folder"), ()))
            # The folder of a client that names one comes last, and so counts.
            in_folder = [row._replace(defaults={"folder": folder, **row.defaults}) for row in rows]
            written = file_rows.create(call, in_folder)
            write.answer = file_rows.response_body(written, single=len(rows) == 1)
    # A repeated call gets the answer of the first one, and no file has the new contents.
    if write.is_repeated:
        library.contents.remove(upload.content for upload in uploads)
    return write.answer


def replace(
    library: MediaLibrary, request: WriteRequest, key: str, parts: Iterable[FormPart]
) -> bytes | None:
    """Give a file a new content, and the values of its form's fields.

    It takes the permission to change the file's name.
    """
    # Before the body is received: a caller who may not change files need not send it.
    file_rows.require_permission(library.store, request.identity, collection=FILES, action="update")
    with library.contents.provisional() as stored:
        uploads = receive(library.contents, parts, stored, max_bytes=library.max_field_bytes)
        if len(uploads) > 1:
            raise second_file()
        return _replace_content(library, _with_content_digest(request, uploads), key, uploads[0])


def _delete_rows(call: WriteCall, payload: object) -> list[Content]:
    """Delete the files that a payload names, and return their contents."""
    call, executor = call.begun()
    keys = file_rows.keys_of(executor, call.collection, payload)
    # Locked before the deletion: another content would be left behind by it.
    contents = contents_of(executor.transaction.execute(statement("lock_files"), (keys,)))
    file_rows.delete(call, executor, call.collection, keys)
    return contents


FILE_CALLS = LibraryCalls(FILES, checked_changes, _delete_rows)


# Rows


def _new_row(contents: Contents, upload: FileUpload) -> NewRow:
    values = checked_fields(upload.fields)
    name = str(values.get("filename_download") or upload.content.name)
    defaults = {"id": upload.content.key, "title": title_of(name), "filename_download": name}
    return NewRow(values, defaults, contents.file_columns(upload.content, name))


def _with_content_digest(request: WriteRequest, uploads: Sequence[FileUpload]) -> WriteRequest:
    """Return a request whose Idempotency-Key, if any, is bound to these contents and fields.

    The body of a form differs at each attempt, for its boundary is random.
    """
    idempotency = request.idempotency
    if idempotency is None:
        return request
    description = jsontext.dumps(
        [[upload.content.sha256, upload.content.name, upload.fields] for upload in uploads]
    )
    digest = sha256(idempotency.request.encode() + description).hexdigest()
    return replaced(request, idempotency=replaced(idempotency, request=digest))


def _replace_content(
    library: MediaLibrary, request: WriteRequest, key: str, upload: FileUpload
) -> bytes | None:
    """Change a file's row to a new content; the old one is removed after the commit.

    Of a call that was done before, the new content is removed.
    """
    changes = checked_changes(upload.fields)
    # The file gets the name of the new content, unless the form sets another one.
    name = str(changes.get("filename_download") or upload.content.name)
    changes["filename_download"] = name
    owned = library.contents.file_columns(upload.content, name)
    write = library.new_write(request)
    for attempt in write:
        with attempt as context:
            call = FILE_CALLS.call(library, request, attempt, context, "update")
            row_key = parse_key(call.collection, key)
            call, executor = call.begun()
            transaction = executor.transaction
            # Under the lock: what is removed is the content that this call replaces.
            former = contents_of(transaction.execute(statement("lock_files"), ([row_key],)))
            written = file_rows.update(call, key, changes, if_match=request.if_match, owned=owned)
            library.remove_after_commit(transaction, former)
            write.answer = file_rows.response_body(written, single=True)
    # A repeated call gets the answer of the first one, and no file has the new content.
    if write.is_repeated:
        library.contents.remove([upload.content])
    return write.answer


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
