"""Stray contents, which belong to no file, and files without a content.

No care in a request can prevent them: a process may be killed between content and row, a disk may
be restored from an older copy. `cms maintain` looks for them.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import islice

from cms.database.connections import Transaction, single_values
from cms.database.statements import statement
from cms.files.contents import are_kept
from cms.files.file_names import EXTENSION_ON_DISK
from cms.files.storage import Storage, Storages
from cms.text_shapes import UUID

MIN_AGE = timedelta(days=1)
"""Longer than any request or transfer takes."""

BATCH = 1000

# The names that `Contents.put` gives, `<uuid>.<extension>`, and those of derivatives,
# `<uuid>__/<key>.<format>`.
_CONTENT = re.compile(rf"{UUID}{EXTENSION_ON_DISK}")
_DERIVED = re.compile(rf"({UUID})(?:__|/).+", re.DOTALL)


@dataclass(frozen=True, slots=True)
class SweepResult:
    """The contents that a sweep removed, as `location/path`, and the ids of files without one."""

    removed: tuple[str, ...] = ()
    without_content: tuple[str, ...] = ()


def sweep(transaction: Transaction, storages: Storages, *, age: timedelta = MIN_AGE) -> SweepResult:
    """Remove contents older than `age` that no file has, and return the files that have none.

    Names that this service does not give are left alone: a location may hold other things too.
    While a backup runs, which may need them, all contents stay.
    Raises `Refused` SERVICE_UNAVAILABLE when a location does not answer.
    """
    removed: list[str] = []
    without_content: list[str] = []
    transaction.execute(statement("create_seen_contents"))
    for storage in storages.values():
        _record_contents(transaction, storage, before=datetime.now(UTC) - age)
        parameters = (storage.name, f"{age.total_seconds()} seconds")
        rows = transaction.execute(statement("find_files_without_content"), parameters)
        without_content += single_values(rows)
        # Old ones only: a request may be about to write the row of a new content.
        rows = transaction.execute(statement("find_stray_contents"), (storage.name,))
        strays = single_values(rows)
        # Asked after the strays were found: a backup that begins now needs none of them.
        if are_kept(transaction.execute):
            strays = []
        storage.delete(strays)
        for path in (*strays, *storage.remove_staged(age)):
            removed.append(f"{storage.name}/{path}")
    return SweepResult(tuple(removed), tuple(without_content))


def _record_contents(transaction: Transaction, storage: Storage, *, before: datetime) -> None:
    """Write the contents of a location into a temporary table, a batch at a time."""
    transaction.execute(statement("empty_seen_contents"))
    # A generator: a location may hold millions of contents.
    contents = (content for content in storage.list() if _is_ours(content.path))
    while batch := list(islice(contents, BATCH)):
        paths: list[str] = []
        stems: list[str | None] = []
        are_old: list[str] = []
        for content in batch:
            paths.append(content.path)
            stems.append(_content_stem(content.path))
            # As PostgreSQL writes booleans: the elements of an array are sent as texts.
            are_old.append(str(content.modified < before).lower())
        transaction.execute(statement("add_seen_contents"), (paths, stems, are_old))


def _is_ours(path: str) -> bool:
    """Tell whether this service gives contents or derivatives such names."""
    return bool(_CONTENT.fullmatch(path) or _DERIVED.fullmatch(path))


def _content_stem(path: str) -> str | None:
    """Return the stem of the content from which a path was derived; None for a content itself."""
    match = _DERIVED.fullmatch(path)
    if match is None:
        return None
    return match[1]
