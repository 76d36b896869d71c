"""Uploads by form: files with their fields around them, read as they come."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from cms import jsontext
from cms.errors import invalid_payload
from cms.files.contents import Content, Contents, Incoming, Json

JSON_FIELDS = frozenset({"tags"})


@dataclass(frozen=True, slots=True)
class FormPart:
    """One part of a form; a file has a `filename`. Its bytes must be read before the next part."""

    name: str
    filename: str | None
    declared: str | None
    chunks: Iterator[bytes]

    @property
    def is_file(self) -> bool:
        return self.filename is not None or self.name == "file"


@dataclass(slots=True)
class FileUpload:
    """A content that has arrived, and what its sender says of the file."""

    content: Content
    said: Json = field(default_factory=dict)


def receive(
    contents: Contents, parts: Iterable[FormPart], put: list[Content], *, max_bytes: int
) -> list[FileUpload]:
    """Put the files of a form into their locations, noting each in `put`; fields may take `max_bytes` bytes in all.

    Fields belong to the file that follows them, or, in a form that begins with a file, to the one before them. Those
    behind the last file are that one's in any case.
    """
    uploads: list[FileUpload] = []
    waiting: Json = {}
    first_is_file: bool | None = None
    for part in parts:
        if part.filename == "":  # how browsers send an input that no file was chosen for
            continue
        if first_is_file is None:
            first_is_file = part.is_file
        if part.is_file:
            uploads.append(_store_file(contents, part, waiting, put))
            waiting = {}
        else:
            value, max_bytes = _value(part, max_bytes)
            (uploads[-1].said if first_is_file else waiting)[part.name] = value
    if not uploads:
        raise invalid_payload("The form holds no file", field="file")
    uploads[-1].said |= waiting
    for upload in uploads:
        _relocate(contents, upload, put)
    return uploads


def _store_file(contents: Contents, part: FormPart, said: Json, put: list[Content]) -> FileUpload:
    location = said.get("storage")
    content = contents.put(
        Incoming(part.filename or part.name, part.declared, part.chunks), location
    )
    put.append(content)
    return FileUpload(content, said)


def _relocate(contents: Contents, upload: FileUpload, put: list[Content]) -> None:
    """Bring a content to the location that was only named behind it."""
    location = upload.said.pop("storage", None)
    if location and location != upload.content.storage:
        upload.content = contents.move(upload.content, str(location))
        put.append(upload.content)


def _value(part: FormPart, max_bytes: int) -> tuple[object, int]:
    """Return what a field says, and how many bytes further fields may take; an empty one is null."""
    raw = bytearray()
    for chunk in part.chunks:
        raw += chunk
        if len(raw) > max_bytes:
            raise invalid_payload("The fields of the form are too long", field=part.name)
    try:
        text = raw.decode()
    except UnicodeDecodeError:
        raise invalid_payload("A field of the form is no UTF-8 text", field=part.name) from None
    return (_json(text) if part.name in JSON_FIELDS else text) or None, max_bytes - len(raw)


def _json(text: str) -> object:
    """Return tags that came as JSON or as words with commas between them."""
    try:
        return jsontext.loads(text.encode())
    except ValueError:
        return [word.strip() for word in text.split(",") if word.strip()]
