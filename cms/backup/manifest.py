"""What an archive says of itself: `backup.json`, its first member, and `summary.json`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from cms.backup.error import BackupError, DamagedArchive

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
    """What has to be known before anything of an archive is restored.

    `server` is PostgreSQL's version as a number, `migrations` are names with their SHA-256,
    `extensions` names with their schemas, `storages` the locations that files are in, `filled_views`
    the materialized views with rows. The tables are in the order of their numbers in the archive.
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
    """What is known in the end: the rows of each table, and the files with and without a content."""

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
            FORMAT,
            document["created"],
            document["schema"],
            document["server"],
            document["migrations"],
            document["extensions"],
            tuple(document["storages"]),
            tuple(
                Table(table["name"], tuple(table["columns"]), table["size"])
                for table in document["tables"]
            ),
            tuple(document["filled_views"]),
        )
    except (LookupError, TypeError):
        raise DamagedArchive(f"{HEAD} lacks something") from None


def read_summary(content: bytes) -> Summary:
    document = _document(content)
    try:
        return Summary(document["rows"], document["files"], document["missing"])
    except LookupError:
        raise DamagedArchive(f"{SUMMARY} lacks something") from None


def read_entries(content: bytes) -> list[dict[str, Any]]:
    """Return a list of files; raises `DamagedArchive`."""
    entries = read_json(content)
    if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
        raise DamagedArchive("a list of files in it is not readable")
    return entries


def read_json(content: bytes) -> Any:
    """Return what a description holds; raises `DamagedArchive`."""
    try:
        return json.loads(content)
    except ValueError:
        raise DamagedArchive("a description in it is not readable") from None


def _document(content: bytes) -> dict[str, Any]:
    document = read_json(content)
    if not isinstance(document, dict):
        raise DamagedArchive("a description in it is not readable")
    return document
