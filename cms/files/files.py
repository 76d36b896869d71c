"""Files: rows of system_files whose contents lie in storage locations (docs/files.md).

A content is stored before its row is written, and removed after it: no row is without its content.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace as replaced
from functools import partial
from hashlib import sha256
from threading import Event

from cms import jsontext
from cms.database.connections import Transaction, single_value
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
)
from cms.files.file_rows import NewRow, WriteRequest
from cms.files.media_library import LibraryCalls, MediaLibrary
from cms.files.upload_form import FileUpload, FormPart, receive, second_file
from cms.items.read.reads import parse_key
from cms.items.write.calls import WriteCall, WrittenItems
from cms.schema.system import FILES
from cms.store.write_plan import WritePlan


def upload(library: MediaLibrary, request: WriteRequest, parts: Iterable[FormPart]) -> bytes | None:
    """Create the files of a form, and return one file, or several as an array.

    Returns None to a caller that may not read files.
    """
    file_rows.require_permission(library.store, request.identity, collection=FILES, action="create")
    with library.contents.provisional() as stored:
        # The body ends here, long before the transaction begins: a slow client holds no connection.
        uploads = receive(library.contents, parts, stored, max_bytes=library.max_field_bytes)
        return create_rows(library, _with_content_digest(request, uploads), uploads)


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
    with library.contents.provisional() as stored:
        # JSON declares no media type: the name and the first bytes decide.
        content = library.contents.put(ReceivedContent(name, None, [raw]), location)
        stored.append(content)
        return create_rows(library, request, [FileUpload(content, fields)])


def create_rows(
    library: MediaLibrary, request: WriteRequest, uploads: Sequence[FileUpload]
) -> bytes | None:
    """Write the rows of contents that are stored.

    A call that its Idempotency-Key shows to have been done before writes none; its contents are
    removed again.
    """
    rows = [_new_row(library.contents, upload) for upload in uploads]
    # Set by the commit of this call, and not by the stored answer of an earlier one.
    is_committed = Event()
    plan = partial(_plan_create, rows=rows, is_committed=is_committed)
    body = file_rows.run_write(library.store, request, collection=FILES, action="create", plan=plan)
    # A repeated call gets the answer of the first one, and no file has the new contents.
    if not is_committed.is_set():
        library.contents.remove(upload.content for upload in uploads)
    return body


def _plan_create(
    call: WriteCall, *, rows: Sequence[NewRow], is_committed: Event
) -> WritePlan[bytes | None]:
    folder = single_value(call.context.fetch(statement("find_default_folder"), ()))
    rows_in_folder = [_in_folder(row, folder) for row in rows]
    creation = file_rows.plan_create(call, rows_in_folder)
    return WritePlan(partial(_create_committed, creation, is_committed, single=len(rows) == 1))


def _create_committed(
    creation: WritePlan[WrittenItems],
    is_committed: Event,
    transaction: Transaction,
    *,
    single: bool,
) -> bytes | None:
    """Create rows; `is_committed` is set once they are committed."""
    transaction.after_commit.append(lambda _: is_committed.set())
    return file_rows.response_body(creation.run(transaction), single=single)


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


def _delete_rows(call: WriteCall, transaction: Transaction, payload: object) -> list[Content]:
    """Delete the files that a payload names, and return their contents."""
    call, executor = call.in_transaction(transaction)
    keys = file_rows.keys_of(executor, call.collection, payload)
    # Locked before the deletion: another content would be left behind by it.
    contents = contents_of(transaction.execute(statement("lock_files"), (keys,)))
    file_rows.delete(call, executor, call.collection, keys)
    return contents


FILE_CALLS = LibraryCalls(FILES, checked_changes, _delete_rows)


# Rows


def _new_row(contents: Contents, upload: FileUpload) -> NewRow:
    values = checked_fields(upload.fields)
    name = str(values.get("filename_download") or upload.content.name)
    defaults = {"id": upload.content.key, "title": title_of(name), "filename_download": name}
    return NewRow(values, defaults, contents.file_columns(upload.content, name))


def _in_folder(row: NewRow, folder: str | None) -> NewRow:
    """Return a row that goes into a folder, unless the client names another one."""
    return row._replace(defaults={"folder": folder, **row.defaults})


def _with_content_digest(request: WriteRequest, uploads: Sequence[FileUpload]) -> WriteRequest:
    """Return a request whose Idempotency-Key, if any, is bound to these contents and fields.

    The body of a form differs at each attempt, for its boundary is random.
    """
    idempotency = request.idempotency
    if idempotency is None:
        return request
    descriptions: list[object] = []
    for upload in uploads:
        descriptions.append([upload.content.sha256, upload.content.name, upload.fields])
    description = jsontext.dumps(descriptions)
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
    is_committed = Event()
    update = partial(file_rows.plan_update, request, key=key, changes=changes, owned=owned)
    plan = partial(
        _plan_replacement,
        key=key,
        plan_update=update,
        library=library,
        is_committed=is_committed,
    )
    body = file_rows.run_write(library.store, request, collection=FILES, action="update", plan=plan)
    # A repeated call gets the answer of the first one, and no file has the new content.
    if not is_committed.is_set():
        library.contents.remove([upload.content])
    return body


def _plan_replacement(
    call: WriteCall,
    *,
    key: str,
    plan_update: Callable[[WriteCall], WritePlan[WrittenItems]],
    library: MediaLibrary,
    is_committed: Event,
) -> WritePlan[bytes | None]:
    row_key = parse_key(call.collection, key)
    return WritePlan(partial(_replace_row, plan_update(call), row_key, library, is_committed))


def _replace_row(
    update: WritePlan[WrittenItems],
    key: str,
    library: MediaLibrary,
    is_committed: Event,
    transaction: Transaction,
) -> bytes | None:
    """Change a file's row to a new content; `is_committed` is set once that is committed."""
    # Under the lock, so that the content that is removed is the one that this call replaces.
    former = contents_of(transaction.execute(statement("lock_files"), ([key],)))
    body = file_rows.response_body(update.run(transaction), single=True)
    transaction.after_commit.append(lambda _: is_committed.set())
    transaction.after_commit.append(lambda _: library.remove(former))
    return body
