"""The record of paths into JSON by which reads filter and sort, for `cms doctor`."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, date, datetime
from threading import Lock
from typing import NamedTuple

from cms.database.connections import Database
from cms.database.error_mapping import Stale
from cms.database.statements import statement
from cms.errors import Refused
from cms.query.sql.arguments import array
from cms.query.sql.statement import IndexableJsonPath

log = logging.getLogger("cms.store")

MAX_PATHS = 100
"""How many paths of one collection a process counts, and how many the table keeps."""
MAX_RECORDED_LENGTH = 200
"""Characters of a path; longer ones are not recorded."""


class _DueUse(NamedTuple):
    """A path that is to be recorded, and its uses of today."""

    collection: str
    path: str
    use_count: int


class JsonPathRecord:
    """Counts the uses of each path in a day, and records a path at its use 1, 2, 4, 8 and so on.

    Clients may name any number of paths that are in no document: those that recur stay, here and
    in the table.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        self._lock = Lock()
        self._day: date | None = None
        self._uses: dict[str, dict[str, int]] = {}
        """The uses of paths, by collection and path."""
        self._recorded: Counter[tuple[str, int]] = Counter()
        """How many paths of a collection have been recorded at a number of uses."""

    def add(self, paths: Iterable[IndexableJsonPath]) -> None:
        """Count a use of each path of a read; a failure costs the record only."""
        due: list[_DueUse] = []
        with self._lock:
            self._begin_day()
            for collection, path in paths:
                count = self._count(collection, path)
                if count:
                    due.append(_DueUse(collection, path, count))
        if due:
            self._record(due)

    def _begin_day(self) -> None:
        today = datetime.now(UTC).date()
        if self._day != today:
            self._day = today
            self._uses = {}
            self._recorded = Counter()

    def _count(self, collection: str, path: str) -> int:
        """Count a use; return how many there were today if that is to be recorded, otherwise 0."""
        if len(path) > MAX_RECORDED_LENGTH:
            return 0
        uses = self._uses.setdefault(collection, {})
        if path not in uses and len(uses) >= MAX_PATHS:
            self._uses[collection] = _decremented(uses)
            return 0
        count = uses.get(path, 0) + 1
        uses[path] = count
        is_due = count.bit_count() == 1 and self._recorded[collection, count] < MAX_PATHS
        if not is_due:
            return 0
        self._recorded[collection, count] += 1
        return count

    def _record(self, uses: Sequence[_DueUse]) -> None:
        collections = array([use.collection for use in uses])
        paths = array([use.path for use in uses])
        counts = array([str(use.use_count) for use in uses])
        try:
            with self._database.transaction() as transaction:
                transaction.execute(statement("record_json_paths"), (collections, paths, counts))
                transaction.execute(statement("trim_json_paths"), (collections, MAX_PATHS))
        except (Refused, Stale) as error:
            log.warning("paths into JSON could not be recorded: %s", error)


def _decremented(uses: Mapping[str, int]) -> dict[str, int]:
    """Return the uses of paths less one, without those that had no other.

    By this algorithm of Misra and Gries a path stays if it has more than one in MAX_PATHS of all
    uses, however many other paths there are.
    """
    return {path: count - 1 for path, count in uses.items() if count > 1}
