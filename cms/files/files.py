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
from cms.errors import Problem, Refused, invalid_payload, shown
from cms.files import records
from cms.files.contents import Content, Contents, Incoming, Json, contents_of
from cms.files.form import Part, Upload, received
from cms.files.names import clean_name, title_of
from cms.files.records import FILES, Ask, Doing
from cms.outgoing import Reach
from cms.store.calls import Call, Written
from cms.store.database import Transaction
from cms.store.reads import parse_key
from cms.store.statements import statement
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

SETTLED = frozenset({"id", "storage"})
"""Fields that are sent at the creation at most."""


@dataclass(frozen=True, slots=True)
class Library:
    """What the calls on files go by; forms and JSON bodies hold `most` bytes beside the files."""

    store: Store
    contents: Contents
    reach: Reach
    import_seconds: float
    most: int

    @classmethod
    def of(cls, store: Store, config: Config) -> Library:
        seconds = config.import_timeout.total_seconds()
        return cls(store, Contents(config), Reach.of(config), seconds, config.max_payload_size)


def upload(library: Library, ask: Ask, parts: Iterable[Part]) -> bytes | None:
    """Create the files of a form and answer one, or several as an array; None for who may not read them."""
    records.require(library.store, ask.identity, FILES, "create")
    with library.contents.provisional() as put:
        uploads = received(library.contents, parts, put, most=library.most)
        return created(library, _told_apart(ask, uploads), uploads)


def upload_json(library: Library, ask: Ask, payload: Mapping[str, object]) -> bytes | None:
    """Create a file of a JSON body, whose `data` is the content in base64."""
    records.require(library.store, ask.identity, FILES, "create")
    said: Json = dict(payload)
    raw, name = _raw(said.pop("data", None)), said.get("filename_download")
    if not isinstance(name, str) or not name:
        raise invalid_payload('"filename_download" must be a text', field="filename_download", value=shown(name))
    location = said.pop("storage", None)
    if location is not None and not isinstance(location, str):
        raise invalid_payload('"storage" must be a text', field="storage", value=shown(location))
    with library.contents.provisional() as put:
        put.append(library.contents.put(Incoming(name, None, [raw]), location))
        return created(library, ask, [Upload(put[0], said)])


def created(library: Library, ask: Ask, uploads: Sequence[Upload]) -> bytes | None:
    """Make the rows of contents that have arrived; of a call that was done before the contents go again."""
    rows = [_row(library.contents, upload) for upload in uploads]
    done: list[bool] = []

    def plan(call: Call) -> Doing[bytes | None]:
        usual = {"folder": call.scene.fetch(statement("find_default_folder"), ())[0][0]}
        said, titles, owned = zip(*rows, strict=True)
        write = records.creating(call, said, [usual | title for title in titles], owned)

        def within(transaction: Transaction) -> bytes | None:
            transaction.afterwards.append(lambda _: done.append(True))
            return records.shown(write(transaction), many=len(rows) > 1)

        return within

    found = records.writing(library.store, ask, (FILES, "create"), plan)
    if not done:
        library.contents.remove(upload.content for upload in uploads)
    return found


def replace(library: Library, ask: Ask, key: str, parts: Iterable[Part]) -> bytes | None:
    """Give a file a new content, and what the fields of its form say; who may change its name may do it."""
    records.require(library.store, ask.identity, FILES, "update")
    with library.contents.provisional() as put:
        uploads = received(library.contents, parts, put, most=library.most)
        if len(uploads) > 1:
            raise invalid_payload("The form holds more than one file", field="file")
        content, said = uploads[0].content, sayable(uploads[0].said)
        name = str(said.get("filename_download") or content.name)
        row = {**said, "filename_download": name}, library.contents.described(content, name)
        return _replaced(library, ask, key, row)


def change_one(library: Library, ask: Ask, key: str, payload: object) -> bytes | None:
    """Change what is said of a file."""
    said = sayable(payload)
    found = _written(library, ask, lambda call: records.changing(ask, call, key, said, {}))
    return records.shown(found, many=False)


def change_many(library: Library, ask: Ask, payload: object) -> bytes | None:
    """Change what is said of files: by an array of objects with their ids, or by `keys` or `query` with `data`."""
    said = batch(payload, sayable)
    return records.shown(_written(library, ask, lambda call: records.changing_many(call, said)), many=True)


def delete_one(library: Library, ask: Ask, key: str) -> None:
    """Delete a file with its content."""
    _delete(library, ask, [key], key=key)


def delete_many(library: Library, ask: Ask, payload: object) -> None:
    """Delete files with their contents: by an array of ids, by `keys`, or by `query`."""
    _delete(library, ask, payload)


def _delete(library: Library, ask: Ask, payload: object, *, key: str | None = None) -> None:
    def plan(call: Call) -> Doing[list[Content]]:
        def within(transaction: Transaction) -> list[Content]:
            if key is not None:
                records.check_match(ask, call, transaction, key)
            session = call.session(transaction)
            keys = records.named(session, call.collection, payload)
            contents = contents_of(transaction.execute(statement("lock_files"), (keys,)))
            records.delete(session, call.collection, keys)
            return contents

        return within

    library.contents.remove(records.writing(library.store, ask, (FILES, "delete"), plan))


# What is said of files


def _row(contents: Contents, upload: Upload) -> tuple[Json, Json, Json]:
    """Return what is said of a new file, what it gets where that is silent, and what the service sets."""
    given = {name: value for name, value in upload.said.items() if (name, value) != ("id", None)}
    _refuse(given, SERVER_OWNED)
    said = _named(given)
    name = str(said.get("filename_download") or upload.content.name)
    usual = {"id": upload.content.key, "title": title_of(name), "filename_download": name}
    return said, usual, contents.described(upload.content, name)


def sayable(payload: object) -> Json:
    """Return what a client may say of a file that is there; raises `Refused` INVALID_PAYLOAD for anything else."""
    if not isinstance(payload, Mapping):
        raise invalid_payload("The body must be an object")
    _refuse(payload, SERVER_OWNED | SETTLED)
    return _named(payload)


def batch(payload: object, checked: Callable[[object], Json]) -> object:
    """Return a change of many with each of its objects checked; raises `Refused` INVALID_PAYLOAD for another shape."""
    if isinstance(payload, list):
        return [{"id": _id(item), **checked(_without_id(item))} for item in payload]
    if not isinstance(payload, Mapping) or "data" not in payload:
        raise invalid_payload("The body must be an array of objects with their ids, or hold data with keys or query")
    return {**payload, "data": checked(payload["data"])}


def _id(item: object) -> str:
    found = item.get("id") if isinstance(item, Mapping) else None
    if not isinstance(found, str):
        raise invalid_payload('Each element must be an object with its "id"', field="id")
    return found


def _without_id(item: object) -> object:
    return {name: value for name, value in item.items() if name != "id"} if isinstance(item, Mapping) else item


def _named(said: Mapping[str, object]) -> Json:
    """Clean the name under which a file is downloaded."""
    found = dict(said)
    if "filename_download" in found:
        if not isinstance(found["filename_download"], str):
            value = shown(found["filename_download"])
            raise invalid_payload('"filename_download" must be a text', field="filename_download", value=value)
        found["filename_download"] = clean_name(found["filename_download"])
    return found


def _refuse(said: Mapping[str, object], owned: frozenset[str]) -> None:
    """Refuse fields that are not the client's to set, all of them in one answer."""
    reason = "The service sets it"
    problems = [
        Problem(
            "INVALID_PAYLOAD", f"Invalid payload. {reason}.", {"reason": reason, "collection": FILES, "field": name}
        )
        for name in sorted(owned & said.keys())
    ]
    if problems:
        raise Refused(problems)


def _raw(data: object) -> bytes:
    """Return a content that came in base64, as it is or as a data address."""
    if not isinstance(data, str):
        raise invalid_payload('"data" must be the content in base64', field="data")
    bare = re.sub(r"\s", "", re.sub(r"^data:[^,]*;base64,", "", data))
    try:
        return base64.b64decode(bare, validate=True)
    except (binascii.Error, ValueError):
        raise invalid_payload('"data" must be the content in base64', field="data") from None


# Rows


def _told_apart(ask: Ask, uploads: Sequence[Upload]) -> Ask:
    """Return an ask whose Idempotency-Key, if it has one, goes with these very contents and fields."""
    if ask.once is None:
        return ask
    said = jsontext.dumps([[upload.content.sha256, upload.content.name, upload.said] for upload in uploads])
    return replaced(ask, once=replaced(ask.once, request=sha256(ask.once.request.encode() + said).hexdigest()))


def _written(library: Library, ask: Ask, plan: Callable[[Call], Doing[Written]]) -> Written:
    return records.writing(library.store, ask, (FILES, "update"), plan)


def _replaced(library: Library, ask: Ask, key: str, row: tuple[Json, Json]) -> bytes | None:
    """Change a file's row to a new content; the one before is removed once that is done."""

    def plan(call: Call) -> Doing[tuple[Written, list[Content]]]:
        change, found = records.changing(ask, call, key, *row), parse_key(call.collection, key)

        def within(transaction: Transaction) -> tuple[Written, list[Content]]:
            before = contents_of(transaction.execute(statement("lock_files"), ([found],)))
            return change(transaction), before

        return within

    written, before = records.writing(library.store, ask, (FILES, "update"), plan)
    library.contents.remove(before)
    return records.shown(written, many=False)
