"""The descriptions in an archive: `backup.json`, its first member, and `summary.json`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar

from cms.backup import BackupError, DamagedArchive

T = TypeVar("T")

FORMAT = 1

HEAD = "backup.json"
BEFORE = "structure/before.sql"
AFTER = "structure/after.sql"
SEQUENCES = "sequences.json"
SUMMARY = "summary.json"

# Folders: a table has one by its number, with its parts by theirs; a file is named by its id.
TABLES = "tables"
FILES = "files"
LISTS = "lists"


@dataclass(frozen=True, slots=True)
class Table:
    """A table with its stored columns; `size` is what it takes on the server's disk."""

    name: str
    columns: tuple[str, ...]
    size: int


@dataclass(frozen=True, slots=True)
class Head:
    """The facts about an archive that a restoration needs first.

    `server` is PostgreSQL's version as a number, `migrations` are names with their SHA-256,
    `extensions` names with their schemas, `storages` the locations that files are in,
    `filled_views` the materialized views with rows. The tables are in the order of their numbers in
    the archive.
    """

    format: int
    created: str
    schema: str
    server: int
    migrations: Mapping[str, str]
    extensions: Mapping[str, str]
    storages: tuple[str, ...]
    tables: tuple[Table, ...]
    filled_views: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Summary:
    """The totals of a backup: the rows of each table, and the files with and without content."""

    rows: Mapping[str, int]
    files: int
    missing: int


def read_head(content: bytes) -> Head:
    """Return the head of an archive; raises `BackupError` for one of another format."""
    document = _document(content)
    if document.get("format") != FORMAT:
        raise BackupError(
            f"The archive has the format {document.get('format')}; this version reads {FORMAT}. "
            "Restore it with the version that made it."
        )
    try:
        return Head(
            format=FORMAT,
            created=_as(str, document["created"]),
            schema=_as(str, document["schema"]),
            server=_as(int, document["server"]),
            migrations=_by_name(str, document["migrations"]),
            extensions=_by_name(str, document["extensions"]),
            storages=_texts(document["storages"]),
            tables=tuple(map(_table, _as(list, document["tables"]))),
            filled_views=_texts(document["filled_views"]),
        )
    except (LookupError, TypeError):
        raise DamagedArchive(f"{HEAD} lacks something") from None


def _table(table: Any) -> Table:
    return Table(_as(str, table["name"]), _texts(table["columns"]), _as(int, table["size"]))


def read_summary(content: bytes) -> Summary:
    document = _document(content)
    try:
        return Summary(
            rows=_by_name(int, document["rows"]),
            files=_as(int, document["files"]),
            missing=_as(int, document["missing"]),
        )
    except (LookupError, TypeError):
        raise DamagedArchive(f"{SUMMARY} lacks something") from None


class SequencePosition(NamedTuple):
    """The position of a sequence; `is_used` tells whether the value has been given out."""

    name: str
    value: int
    is_used: bool


def read_sequences(content: bytes) -> list[SequencePosition]:
    """Return the positions of sequences; raises `DamagedArchive`."""
    positions: list[SequencePosition] = []
    try:
        for name, value, is_used in _as(list, read_json(content)):
            positions.append(SequencePosition(_as(str, name), _as(int, value), bool(is_used)))
    except (TypeError, ValueError):
        raise DamagedArchive(f"{SEQUENCES} is not readable") from None
    return positions


@dataclass(frozen=True, slots=True)
class Entry:
    """A file in a list; without `sha256` its content is missing."""

    key: str
    name: str
    size: int
    sha256: str | None


def read_entries(content: bytes) -> list[Entry]:
    """Return a list of files; raises `DamagedArchive`."""
    try:
        return list(map(_entry, _as(list, read_json(content))))
    except (LookupError, TypeError):
        raise DamagedArchive("a list of files in it is not readable") from None


def _entry(entry: Any) -> Entry:
    key = _as(str, entry["id"])
    name = str(entry["name"])
    if entry.get("missing"):
        return Entry(key, name, 0, None)
    return Entry(key, name, _as(int, entry["size"]), _as(str, entry["sha256"]))


def read_json(content: bytes) -> Any:
    """Return the content of a description; raises `DamagedArchive`."""
    try:
        return json.loads(content)
    except (ValueError, RecursionError):
        raise _unreadable() from None


def _document(content: bytes) -> dict[str, Any]:
    try:
        return _as(dict, read_json(content))
    except TypeError:
        raise _unreadable() from None


def _unreadable() -> DamagedArchive:
    return DamagedArchive("a description in it is not readable")


# The functions below raise TypeError for values of other types.


def _as(kind: type[T], value: Any) -> T:
    if not isinstance(value, kind):
        raise TypeError
    return value


def _texts(value: Any) -> tuple[str, ...]:
    return tuple(_as(str, text) for text in _as(list, value))


def _by_name(kind: type[T], value: Any) -> dict[str, T]:
    return {name: _as(kind, member) for name, member in _as(dict, value).items()}
