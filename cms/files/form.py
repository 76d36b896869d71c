"""Uploads by form: files and their fields, read while they arrive."""

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
    """A content that has arrived, and the values of the file's fields."""

    content: Content
    fields: Json = field(default_factory=dict)


def receive(
    contents: Contents, parts: Iterable[FormPart], stored: list[Content], *, max_bytes: int
) -> list[FileUpload]:
    """Put the files of a form into their locations, and add each content to `stored`.

    Fields belong to the file that follows them, or, in a form that begins with a file, to the file
    before them. Fields after the last file always belong to that one. All fields together take at
    most `max_bytes` bytes.
    """
    uploads: list[FileUpload] = []
    next_fields: Json = {}
    first_is_file: bool | None = None
    for part in parts:
        # Browsers send an empty name for an input without a chosen file.
        if part.filename == "":
            continue
        if first_is_file is None:
            first_is_file = part.is_file
        if part.is_file:
            uploads.append(_store_file(contents, part, next_fields, stored))
            next_fields = {}
        else:
            value, max_bytes = _value(part, max_bytes)
            fields = uploads[-1].fields if first_is_file else next_fields
            fields[part.name] = value
    if not uploads:
        raise invalid_payload("The form holds no file", field="file")
    uploads[-1].fields |= next_fields
    for upload in uploads:
        _relocate(contents, upload, stored)
    return uploads


def _store_file(
    contents: Contents, part: FormPart, fields: Json, stored: list[Content]
) -> FileUpload:
    incoming = Incoming(part.filename or part.name, part.declared, part.chunks)
    content = contents.put(incoming, fields.get("storage"))
    stored.append(content)
    return FileUpload(content, fields)


def _relocate(contents: Contents, upload: FileUpload, stored: list[Content]) -> None:
    """Move a content to the location that a field after it names."""
    location = upload.fields.pop("storage", None)
    if location and location != upload.content.storage:
        upload.content = contents.move(upload.content, str(location))
        stored.append(upload.content)


def _value(part: FormPart, max_bytes: int) -> tuple[object, int]:
    """Return the value of a field (null for an empty one) and the bytes left for further fields."""
    raw = bytearray()
    for chunk in part.chunks:
        raw += chunk
        if len(raw) > max_bytes:
            raise invalid_payload("The fields of the form are too long", field=part.name)
    try:
        text = raw.decode()
    except UnicodeDecodeError:
        raise invalid_payload("A field of the form is no UTF-8 text", field=part.name) from None
    value = _parse_tags(text) if part.name in JSON_FIELDS else text
    return value or None, max_bytes - len(raw)


def _parse_tags(text: str) -> object:
    """Return tags that came as JSON, or as words with commas between them."""
    try:
        return jsontext.loads(text.encode())
    except ValueError:
        return [word.strip() for word in text.split(",") if word.strip()]
