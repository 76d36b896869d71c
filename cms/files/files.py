"""Files: rows of system_files whose contents lie in storage locations (specification 2.5; decisions, section 7).

A row is there only when its content is: the content comes first and goes last.
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
"""Fields that nobody sends."""

CREATE_ONLY = frozenset({"id", "storage"})
"""Fields that are sent at the creation at most."""


@dataclass(frozen=True, slots=True)
class Library:
    """What the calls on files go by; forms and JSON bodies hold `max_bytes` bytes beside the files."""

    store: Store
    contents: Contents
    address_filter: AddressFilter
    import_seconds: float
    max_bytes: int

    @classmethod
    def from_config(cls, store: Store, config: Config) -> Library:
        seconds = config.import_timeout.total_seconds()
        return cls(
            store,
            Contents(config),
            AddressFilter.from_config(config),
            seconds,
            config.max_payload_size,
        )


def upload(library: Library, request: WriteRequest, parts: Iterable[FormPart]) -> bytes | None:
    """Create the files of a form and answer one, or several as an array; None for who may not read them."""
    records.require_permission(library.store, request.identity, FILES, "create")
    with library.contents.provisional() as put:
        uploads = receive(library.contents, parts, put, max_bytes=library.max_bytes)
        return create_rows(library, _with_content_digest(request, uploads), uploads)


def upload_json(
    library: Library, request: WriteRequest, payload: Mapping[str, object]
) -> bytes | None:
    """Create a file of a JSON body, whose `data` is the content in base64."""
    records.require_permission(library.store, request.identity, FILES, "create")
    said: Json = dict(payload)
    raw, name = _decode_base64(said.pop("data", None)), said.get("filename_download")
    if not isinstance(name, str) or not name:
        raise invalid_payload(
            '"filename_download" must be a text', field="filename_download", value=abbreviated(name)
        )
    location = said.pop("storage", None)
    if location is not None and not isinstance(location, str):
        raise invalid_payload(
            '"storage" must be a text', field="storage", value=abbreviated(location)
        )
    with library.contents.provisional() as put:
        put.append(library.contents.put(Incoming(name, None, [raw]), location))
        return create_rows(library, request, [FileUpload(put[0], said)])


def create_rows(
    library: Library, request: WriteRequest, uploads: Sequence[FileUpload]
) -> bytes | None:
    """Make the rows of contents that have arrived; of a call that was done before the contents go again."""
    rows = [_row(library.contents, upload) for upload in uploads]
    done: list[bool] = []

    def plan(call: WriteCall) -> TransactionWork[bytes | None]:
        defaults = {"folder": call.context.fetch(statement("find_default_folder"), ())[0][0]}
        said, titles, owned = zip(*rows, strict=True)
        write = records.plan_create(call, said, [defaults | title for title in titles], owned)

        def within(transaction: Transaction) -> bytes | None:
            transaction.after_commit.append(lambda _: done.append(True))
            return records.response_body(write(transaction), many=len(rows) > 1)

        return within

    found = records.writing(library.store, request, (FILES, "create"), plan)
    if not done:
        library.contents.remove(upload.content for upload in uploads)
    return found


def replace(
    library: Library, request: WriteRequest, key: str, parts: Iterable[FormPart]
) -> bytes | None:
    """Give a file a new content, and what the fields of its form say; who may change its name may do it."""
    records.require_permission(library.store, request.identity, FILES, "update")
    with library.contents.provisional() as put:
        uploads = receive(library.contents, parts, put, max_bytes=library.max_bytes)
        if len(uploads) > 1:
            raise invalid_payload("The form holds more than one file", field="file")
        content, said = uploads[0].content, checked_changes(uploads[0].said)
        name = str(said.get("filename_download") or content.name)
        row = {**said, "filename_download": name}, library.contents.file_columns(content, name)
        return _replace_content(library, request, key, row)


def change_one(library: Library, request: WriteRequest, key: str, payload: object) -> bytes | None:
    """Change what is said of a file."""
    said = checked_changes(payload)
    found = _update(
        library, request, lambda call: records.plan_update(request, call, key, said, {})
    )
    return records.response_body(found, many=False)


def change_many(library: Library, request: WriteRequest, payload: object) -> bytes | None:
    """Change what is said of files: by an array of objects with their ids, or by `keys` or `query` with `data`."""
    said = checked_batch(payload, checked_changes)
    return records.response_body(
        _update(library, request, lambda call: records.plan_update_many(call, said)), many=True
    )


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
            contents = contents_of(transaction.execute(statement("lock_files"), (keys,)))
            records.delete(write_context, call.collection, keys)
            return contents

        return within

    library.contents.remove(records.writing(library.store, request, (FILES, "delete"), plan))


# What is said of files


def _row(contents: Contents, upload: FileUpload) -> tuple[Json, Json, Json]:
    """Return what is said of a new file, what it gets where that is silent, and what the service sets."""
    given = {name: value for name, value in upload.said.items() if (name, value) != ("id", None)}
    _refuse_owned(given, SERVER_OWNED)
    said = _with_clean_name(given)
    name = str(said.get("filename_download") or upload.content.name)
    defaults = {"id": upload.content.key, "title": title_of(name), "filename_download": name}
    return said, defaults, contents.file_columns(upload.content, name)


def checked_changes(payload: object) -> Json:
    """Return what a client may say of a file that is there; raises `Refused` INVALID_PAYLOAD for anything else."""
    if not isinstance(payload, Mapping):
        raise invalid_payload("The body must be an object")
    _refuse_owned(payload, SERVER_OWNED | CREATE_ONLY)
    return _with_clean_name(payload)


def checked_batch(payload: object, checked: Callable[[object], Json]) -> object:
    """Return a change of many with each of its objects checked; raises `Refused` INVALID_PAYLOAD for another shape."""
    if isinstance(payload, list):
        return [{"id": _id(item), **checked(_without_id(item))} for item in payload]
    if not isinstance(payload, Mapping) or "data" not in payload:
        raise invalid_payload(
            "The body must be an array of objects with their ids, or hold data with keys or query"
        )
    return {**payload, "data": checked(payload["data"])}


def _id(item: object) -> str:
    found = item.get("id") if isinstance(item, Mapping) else None
    if not isinstance(found, str):
        raise invalid_payload('Each element must be an object with its "id"', field="id")
    return found


def _without_id(item: object) -> object:
    return (
        {name: value for name, value in item.items() if name != "id"}
        if isinstance(item, Mapping)
        else item
    )


def _with_clean_name(said: Mapping[str, object]) -> Json:
    """Clean the name under which a file is downloaded."""
    found = dict(said)
    if "filename_download" in found:
        if not isinstance(found["filename_download"], str):
            value = abbreviated(found["filename_download"])
            raise invalid_payload(
                '"filename_download" must be a text', field="filename_download", value=value
            )
        found["filename_download"] = clean_name(found["filename_download"])
    return found


def _refuse_owned(said: Mapping[str, object], owned: frozenset[str]) -> None:
    """Refuse fields that are not the client's to set, all of them in one answer."""
    reason = "The service sets it"
    problems = [
        Problem(
            "INVALID_PAYLOAD",
            f"Invalid payload. {reason}.",
            {"reason": reason, "collection": FILES, "field": name},
        )
        for name in sorted(owned & said.keys())
    ]
    if problems:
        raise Refused(problems)


def _decode_base64(data: object) -> bytes:
    """Return a content that came in base64, as it is or as a data address."""
    if not isinstance(data, str):
        raise invalid_payload('"data" must be the content in base64', field="data")
    bare = re.sub(r"\s", "", re.sub(r"^data:[^,]*;base64,", "", data))
    try:
        return base64.b64decode(bare, validate=True)
    except (binascii.Error, ValueError):
        raise invalid_payload('"data" must be the content in base64', field="data") from None


# Rows


def _with_content_digest(request: WriteRequest, uploads: Sequence[FileUpload]) -> WriteRequest:
    """Return an ask whose Idempotency-Key, if it has one, goes with these very contents and fields."""
    if request.idempotency is None:
        return request
    said = jsontext.dumps(
        [[upload.content.sha256, upload.content.name, upload.said] for upload in uploads]
    )
    return replaced(
        request,
        idempotency=replaced(
            request.idempotency,
            request=sha256(request.idempotency.request.encode() + said).hexdigest(),
        ),
    )


def _update(
    library: Library,
    request: WriteRequest,
    plan: Callable[[WriteCall], TransactionWork[WrittenItems]],
) -> WrittenItems:
    return records.writing(library.store, request, (FILES, "update"), plan)


def _replace_content(
    library: Library, request: WriteRequest, key: str, row: tuple[Json, Json]
) -> bytes | None:
    """Change a file's row to a new content; the one before is removed once that is done."""

    def plan(call: WriteCall) -> TransactionWork[tuple[WrittenItems, list[Content]]]:
        change, found = (
            records.plan_update(request, call, key, *row),
            parse_key(call.collection, key),
        )

        def within(transaction: Transaction) -> tuple[WrittenItems, list[Content]]:
            before = contents_of(transaction.execute(statement("lock_files"), ([found],)))
            return change(transaction), before

        return within

    written, before = records.writing(library.store, request, (FILES, "update"), plan)
    library.contents.remove(before)
    return records.response_body(written, many=False)
