"""Strays on either side: contents without a file, and files without a content.

Both are left by what no care in a request can prevent: a process that is killed between content and
row, a disk that was restored from an older copy. `cms maintain` looks for them.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import islice

from cms.database.connections import Transaction
from cms.database.statements import statement
from cms.files.storage import Storage, Storages

MIN_AGE = timedelta(days=1)
BATCH = 1000

_UUID = "[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"
_CONTENT = re.compile(rf"{_UUID}\.[a-z0-9]+")
_DERIVED = re.compile(rf"({_UUID})(?:__|/).+", re.DOTALL)


@dataclass(frozen=True, slots=True)
class SweepResult:
    """What a sweep found: the contents that it removed, as `location/path`, and the ids of files
    without one.
    """

    removed: tuple[str, ...] = ()
    without_content: tuple[str, ...] = ()


def sweep(transaction: Transaction, storages: Storages, *, age: timedelta = MIN_AGE) -> SweepResult:
    """Remove contents that no file has, and tell which files have none; nothing younger than `age`
    is touched.

    Only what this service has named is looked at: a location may hold other things beside. Raises
    `Refused` SERVICE_UNAVAILABLE when a location does not answer.
    """
    removed: list[str] = []
    without: list[str] = []
    transaction.execute(statement("make_seen_contents"))
    for storage in storages.values():
        _record_contents(transaction, storage, before=datetime.now(UTC) - age)
        span = f"{age.total_seconds()} seconds"
        without += _column(transaction, "find_files_without_content", storage.name, span)
        strays = _column(transaction, "find_stray_contents", storage.name)
        storage.delete(strays)
        removed += [f"{storage.name}/{path}" for path in (*strays, *storage.remove_staged(age))]
    return SweepResult(tuple(removed), tuple(without))


def _record_contents(transaction: Transaction, storage: Storage, *, before: datetime) -> None:
    """Note what a location holds, a batch at a time."""
    transaction.execute(statement("empty_seen_contents"))
    found = (
        one
        for one in storage.list()
        if _CONTENT.fullmatch(one.path) or _DERIVED.fullmatch(one.path)
    )
    while batch := list(islice(found, BATCH)):
        paths = [one.path for one in batch]
        old = ["true" if one.modified < before else "false" for one in batch]
        transaction.execute(
            statement("add_seen_contents"), (paths, [_content_stem(path) for path in paths], old)
        )


def _content_stem(path: str) -> str | None:
    """Return the name, without its ending, of the content that something was derived from; None for
    a content.
    """
    found = _DERIVED.fullmatch(path)
    return found[1] if found else None


def _column(transaction: Transaction, name: str, *values: str) -> list[str]:
    return [found for (found,) in transaction.execute(statement(name), values)]
