"""The record of paths into JSON that reads search and sort by, for `cms doctor`."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from datetime import UTC, date, datetime

from cms.database.connections import Database
from cms.database.error_mapping import Stale
from cms.database.statements import statement
from cms.errors import Refused
from cms.query.plan.searched_paths import SearchedPath
from cms.query.sql.arrays import array

log = logging.getLogger("cms.store")

MAX_PATHS = 1_000
"""How many paths a process records in a day, and how many the table keeps."""
MAX_PATH_LENGTH = 200


class PathRecord:
    """Records each path once a day: clients may name any number of paths, and most are repeated."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._day: date | None = None
        self._recorded: set[SearchedPath] = set()

    def add(self, paths: Iterable[SearchedPath]) -> None:
        """Record the paths of a read that are new today; a failure costs the record only."""
        today = datetime.now(UTC).date()
        if self._day != today:
            self._day = today
            self._recorded = set()
        new = [path for path in paths if path not in self._recorded]
        if not new or len(self._recorded) >= MAX_PATHS:
            return
        self._recorded.update(new)
        collections: list[str] = []
        names: list[str] = []
        for collection, name in new:
            if len(name) <= MAX_PATH_LENGTH:
                collections.append(collection)
                names.append(name)
        try:
            with self._database.transaction() as transaction:
                parameters = (array(collections), array(names))
                transaction.execute(statement("record_json_paths"), parameters)
                transaction.execute(statement("trim_json_paths"), (MAX_PATHS,))
        except (Refused, Stale) as error:
            log.warning("paths into JSON could not be recorded: %s", error)
