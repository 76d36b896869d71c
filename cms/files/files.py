"""Files: rows of system_files whose contents lie in storage locations (docs/files.md).

A content is stored before its row is written, and removed after it: no row is without its content.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from dataclasses import replace as replaced
from hashlib import sha256

from cms import jsontext
from cms.config import Config
from cms.database.connections import Transaction
from cms.database.statements import statement
from cms.errors import Problem, Refused, abbreviated, invalid_payload
from cms.files import records
from cms.files.contents import Content, Contents, Incoming, Json, contents_of
from cms.files.form import FileUpload, FormPart, receive
from cms.files.names import clean_name, title_of
from cms.files.records import FILES, TransactionWork, WriteRequest
from cms.items.read.reads import parse_key
from cms.items.write.calls import WriteCall, WrittenItems
from cms.outgoing import AddressFilter
from cms.store.store import Store

SERVER_OWNED = frozenset(
    {
        "filename_disk",
        "filesize",
        "type",
        "width",
        "height",
        "charset",
        "metadata",
        "uploaded_by",
        "uploaded_on",
        "modified_by",
        "modified_on",
    }
)
"""Fields that clients cannot set."""

CREATE_ONLY = frozenset({"id", "storage"})
"""Fields that clients can set only when they create a file."""


@dataclass(frozen=True, slots=True)
class Library:
    """The collaborators and limits of the calls on files.

    `max_field_bytes` is the limit of all fields of a form together.
    """

    store: Store
    contents: Contents
    address_filter: AddressFilter
    import_seconds: float
    max_field_bytes: int

    @classmethod
    def from_config(cls, store: Store, config: Config) -> Library:
        return cls(
            store,
            Contents(config),
            AddressFilter.from_config(config),
            import_seconds=config.import_timeout.total_seconds(),
            max_field_bytes=config.max_payload_size,
        )


def upload(library: Library, request: WriteRequest, parts: Iterable[FormPart]) -> bytes | None:
    """Create the files of a form, and return one file, or several as an array.

    Returns None to a caller that may not read files.
    """
    records.require_permission(library.store, request.identity, FILES, "create")
    with library.contents.provisional() as stored:
        uploads = receive(library.contents, parts, stored, max_bytes=library.max_field_bytes)
        return create_rows(library, _with_content_digest(request, uploads), uploads)


def upload_json(
    library: Library, request: WriteRequest, payload: Mapping[str, object]
) -> bytes | None:
    """Create a file of a JSON body, whose `data` is the content in base64."""
    records.require_permission(library.store, request.identity, FILES, "create")
    fields: Json = dict(payload)
    raw = _decode_base64(fields.pop("data", None))
    name = fields.get("filename_download")
    if not isinstance(name, str) or not name:
        raise invalid_payload(
            '"filename_download" must be a text', field="filename_download", value=abbreviated(name)
        )
    location = fields.pop("storage", None)
    if location is not None and not isinstance(location, str):
        raise invalid_payload(
            '"storage" must be a text', field="storage", value=abbreviated(location)
        )
    with library.contents.provisional() as stored:
        content = library.contents.put(Incoming(name, None, [raw]), location)
        stored.append(content)
        return create_rows(library, request, [FileUpload(content, fields)])


def create_rows(
    library: Library, request: WriteRequest, uploads: Sequence[FileUpload]
) -> bytes | None:
    """Write the rows of contents that are stored.

    A call that its Idempotency-Key shows to have been done before writes none; its contents are
    removed again.
    """
    rows = [_row(library.contents, upload) for upload in uploads]
    commits: list[bool] = []

    def plan(call: WriteCall) -> TransactionWork[bytes | None]:
        folder = call.context.fetch(statement("find_default_folder"), ())[0][0]
        items, row_defaults, owned = zip(*rows, strict=True)
        defaults = [{"folder": folder} | row for row in row_defaults]
        write = records.plan_create(call, items, defaults, owned)

        def within(transaction: Transaction) -> bytes | None:
            transaction.after_commit.append(lambda _: commits.append(True))
            return records.response_body(write(transaction), many=len(rows) > 1)

        return within

    body = records.writing(library.store, request, (FILES, "create"), plan)
    if not commits:
        library.contents.remove(upload.content for upload in uploads)
    return body


def replace(
    library: Library, request: WriteRequest, key: str, parts: Iterable[FormPart]
) -> bytes | None:
    """Give a file a new content, and the values of its form's fields.

    It takes the permission to change the file's name.
    """
    records.require_permission(library.store, request.identity, FILES, "update")
    with library.contents.provisional() as stored:
        uploads = receive(library.contents, parts, stored, max_bytes=library.max_field_bytes)
        if len(uploads) > 1:
            raise invalid_payload("The form holds more than one file", field="file")
        content = uploads[0].content
        changes = checked_changes(uploads[0].fields)
        name = str(changes.get("filename_download") or content.name)
        changes["filename_download"] = name
        owned = library.contents.file_columns(content, name)
        return _replace_content(library, request, key, (changes, owned))


def change_one(library: Library, request: WriteRequest, key: str, payload: object) -> bytes | None:
    """Change fields of a file."""
    changes = checked_changes(payload)
    written = _update(
        library, request, lambda call: records.plan_update(request, call, key, changes, {})
    )
    return records.response_body(written, many=False)


def change_many(library: Library, request: WriteRequest, payload: object) -> bytes | None:
    """Change fields of files: an array of objects with ids, or `data` with `keys` or `query`."""
    batch = checked_batch(payload, checked_changes)
    written = _update(library, request, lambda call: records.plan_update_many(call, batch))
    return records.response_body(written, many=True)


def delete_one(library: Library, request: WriteRequest, key: str) -> None:
    """Delete a file with its content."""
    _delete(library, request, [key], key=key)


def delete_many(library: Library, request: WriteRequest, payload: object) -> None:
    """Delete files with their contents: by an array of ids, by `keys`, or by `query`."""
    _delete(library, request, payload)


def _delete(
    library: Library, request: WriteRequest, payload: object, *, key: str | None = None
) -> None:
    def plan(call: WriteCall) -> TransactionWork[list[Content]]:
        def within(transaction: Transaction) -> list[Content]:
            if key is not None:
                records.check_match(request, call, transaction, key)
            write_context = call.write_context(transaction)
            keys = records.named(write_context, call.collection, payload)
            # Locked before the deletion: another content would be left behind by it.
            contents = contents_of(transaction.execute(statement("lock_files"), (keys,)))
            records.delete(write_context, call.collection, keys)
            return contents

        return within

    library.contents.remove(records.writing(library.store, request, (FILES, "delete"), plan))


# Fields of files


def _row(contents: Contents, upload: FileUpload) -> tuple[Json, Json, Json]:
    """Return the client's values for a new file, the defaults, and the values that the service
    sets.
    """
    fields = dict(upload.fields)
    # Null leaves the id to the service.
    if fields.get("id", "") is None:
        del fields["id"]
    _refuse_owned(fields, SERVER_OWNED)
    values = _with_clean_name(fields)
    name = str(values.get("filename_download") or upload.content.name)
    defaults = {"id": upload.content.key, "title": title_of(name), "filename_download": name}
    return values, defaults, contents.file_columns(upload.content, name)


def checked_changes(payload: object) -> Json:
    """Return a client's changes of a file; raises `Refused` INVALID_PAYLOAD for fields of the
    service.
    """
    if not isinstance(payload, Mapping):
        raise invalid_payload("The body must be an object")
    _refuse_owned(payload, SERVER_OWNED | CREATE_ONLY)
    return _with_clean_name(payload)


def checked_batch(payload: object, check: Callable[[object], Json]) -> object:
    """Return changes of several rows, each of them checked.

    Raises `Refused` INVALID_PAYLOAD for a body of another shape.
    """
    if isinstance(payload, list):
        return [{"id": _id(item), **check(_without_id(item))} for item in payload]
    if not isinstance(payload, Mapping) or "data" not in payload:
        raise invalid_payload(
            "The body must be an array of objects with their ids, or hold data with keys or query"
        )
    return {**payload, "data": check(payload["data"])}


def _id(item: object) -> str:
    key = item.get("id") if isinstance(item, Mapping) else None
    if not isinstance(key, str):
        raise invalid_payload('Each element must be an object with its "id"', field="id")
    return key


def _without_id(item: object) -> object:
    if not isinstance(item, Mapping):
        return item
    return {name: value for name, value in item.items() if name != "id"}


def _with_clean_name(fields: Mapping[str, object]) -> Json:
    """Return fields with a clean name for downloads."""
    cleaned = dict(fields)
    if "filename_download" in cleaned:
        name = cleaned["filename_download"]
        if not isinstance(name, str):
            reason = '"filename_download" must be a text'
            raise invalid_payload(reason, field="filename_download", value=abbreviated(name))
        cleaned["filename_download"] = clean_name(name)
    return cleaned


def _refuse_owned(fields: Mapping[str, object], owned: frozenset[str]) -> None:
    """Refuse fields that clients cannot set, all of them in one answer."""
    problems = [_owned_problem(name) for name in sorted(owned & fields.keys())]
    if problems:
        raise Refused(problems)


def _owned_problem(name: str) -> Problem:
    reason = "The service sets it"
    extensions = {"reason": reason, "collection": FILES, "field": name}
    return Problem("INVALID_PAYLOAD", f"Invalid payload. {reason}.", extensions)


def _decode_base64(data: object) -> bytes:
    """Return a content from base64, alone or in a data address."""
    if not isinstance(data, str):
        raise invalid_payload('"data" must be the content in base64', field="data")
    without_scheme = re.sub(r"^data:[^,]*;base64,", "", data)
    try:
        return base64.b64decode(re.sub(r"\s", "", without_scheme), validate=True)
    except (binascii.Error, ValueError):
        raise invalid_payload('"data" must be the content in base64', field="data") from None


# Rows


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


def _update(
    library: Library,
    request: WriteRequest,
    plan: Callable[[WriteCall], TransactionWork[WrittenItems]],
) -> WrittenItems:
    return records.writing(library.store, request, (FILES, "update"), plan)


def _replace_content(
    library: Library, request: WriteRequest, key: str, row: tuple[Json, Json]
) -> bytes | None:
    """Change a file's row to a new content; the old one is removed after the commit."""

    def plan(call: WriteCall) -> TransactionWork[tuple[WrittenItems, list[Content]]]:
        update = records.plan_update(request, call, key, *row)
        row_key = parse_key(call.collection, key)

        def within(transaction: Transaction) -> tuple[WrittenItems, list[Content]]:
            before = contents_of(transaction.execute(statement("lock_files"), ([row_key],)))
            return update(transaction), before

        return within

    written, before = records.writing(library.store, request, (FILES, "update"), plan)
    library.contents.remove(before)
    return records.response_body(written, many=False)
