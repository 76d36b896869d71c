"""Uploads by form: files and their fields, read while they arrive."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from cms import jsontext
from cms.errors import Refused, abbreviated, invalid_payload
from cms.files.contents import Content, Contents, FieldValues, ReceivedContent


@dataclass(frozen=True, slots=True)
class FormPart:
    """One part of a form; a file has a `filename`. Its bytes must be read before the next part."""

    name: str
    filename: str | None
    declared_type: str | None
    chunks: Iterator[bytes]

    @property
    def is_file(self) -> bool:
        return self.filename is not None or self.name == "file"


@dataclass(slots=True)
class FileUpload:
    """A content that has arrived, and the values of the file's fields."""

    content: Content
    fields: FieldValues = field(default_factory=dict)


def receive(
    contents: Contents, parts: Iterable[FormPart], stored: list[Content], *, max_bytes: int
) -> list[FileUpload]:
    """Put the files of a form into their locations, and add each content to `stored`.

    Fields belong to the file that follows them, or, in a form that begins with a file, to the file
    before them. Fields after the last file always belong to that one. All fields together take at
    most `max_bytes` bytes.
    """
    uploads: list[FileUpload] = []
    next_fields: FieldValues = {}
    begins_with_file: bool | None = None
    bytes_left = max_bytes
    for part in parts:
        # Browsers send an empty name for an input without a chosen file.
        if part.filename == "":
            continue
        if begins_with_file is None:
            begins_with_file = part.is_file
        if part.is_file:
            uploads.append(_store_file(contents, part, next_fields, stored))
            next_fields = {}
        else:
            raw = _read_field(part, bytes_left)
            bytes_left -= len(raw)
            fields = next_fields
            if begins_with_file:
                fields = uploads[-1].fields
            fields[part.name] = _field_value(part.name, raw)
    if not uploads:
        raise invalid_payload("The form holds no file", field="file")
    uploads[-1].fields |= next_fields
    # A form that begins with its file names the location only after the content has been stored.
    for upload in uploads:
        _relocate(contents, upload, stored)
    return uploads


def _store_file(
    contents: Contents, part: FormPart, fields: FieldValues, stored: list[Content]
) -> FileUpload:
    received = ReceivedContent(part.filename or part.name, part.declared_type, part.chunks)
    # All files of a form have one limit together.
    bytes_before = sum(content.size for content in stored)
    content = contents.put(received, fields.get("storage"), bytes_before=bytes_before)
    stored.append(content)
    return FileUpload(content, fields)


def _relocate(contents: Contents, upload: FileUpload, stored: list[Content]) -> None:
    """Move a content to the location that a field after it names."""
    location = upload.fields.pop("storage", None)
    if location and location != upload.content.storage:
        upload.content = contents.move(upload.content, str(location))
        stored.append(upload.content)


def _read_field(part: FormPart, max_bytes: int) -> bytearray:
    raw = bytearray()
    for chunk in part.chunks:
        raw += chunk
        if len(raw) > max_bytes:
            raise invalid_payload("The fields of the form are too long", field=part.name)
    return raw


def _field_value(name: str, raw: bytearray) -> object:
    """Return the value of a field; a form has no null, so an empty field stands for it."""
    try:
        text = raw.decode()
    except UnicodeDecodeError:
        raise invalid_payload("A field of the form is no UTF-8 text", field=name) from None
    if name == "tags":
        return _parse_tags(text) or None
    return text or None


def _parse_tags(text: str) -> object:
    """Return tags that came as JSON, or as words with commas between them."""
    try:
        return jsontext.loads(text.encode())
    except ValueError:  # forms of people, not of programs
        return list(filter(None, map(str.strip, text.split(","))))


def unknown_part(name: str) -> Refused:
    """Return the refusal of a part that a form for one file does not take."""
    return invalid_payload(
        f'The form does not take "{abbreviated(name)}"; there is file', field=abbreviated(name)
    )


def second_file() -> Refused:
    """Return the refusal of a form with several files, where one is taken."""
    return invalid_payload("The form has more than one file", field="file")
