"""The metrics of a process: one method for each event."""

from __future__ import annotations

import logging
from pathlib import Path
from threading import Lock

from cms.metrics.families import (
    FLOW_RUNS,
    PLAN_CACHE_HITS,
    PLAN_CACHE_MISSES,
    POOL_WAIT,
    REQUEST_DURATION,
    REQUESTS,
    STATEMENTS,
    TRANSFORMS,
)
from cms.metrics.process_values import ProcessValues
from cms.processes.forks import register_for_forks

log = logging.getLogger("cms")


class Metrics:
    """The metrics of one process, whose files are opened at the first event, or by `open`.

    Both come after the fork: processes must not share their files. An event takes about a
    microsecond.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._lock = Lock()
        self._values: ProcessValues | None = None
        register_for_forks(self)

    def open(self) -> ProcessValues:
        """Return the values of this process, which from now on is among the running ones."""
        with self._lock:
            if self._values is None:
                try:
                    self._values = ProcessValues.in_folder(self.folder)
                except OSError as error:
                    # Requests must not fail for their numbers.
                    log.warning("metrics are those of one process only: %s", error)
                    self._values = ProcessValues.private()
            return self._values

    def count_request(self, method: str, route: str, status: str, seconds: float) -> None:
        """Count an answered request; `route` is the template of its path."""
        values = self._values or self.open()
        values.add(REQUESTS, (method, route, status))
        values.observe(REQUEST_DURATION, seconds, (method, route))

    def count_statement(self) -> None:
        (self._values or self.open()).add(STATEMENTS)

    def count_pool_wait(self, seconds: float) -> None:
        (self._values or self.open()).observe(POOL_WAIT, seconds)

    def count_plan_cache_hit(self) -> None:
        (self._values or self.open()).add(PLAN_CACHE_HITS)

    def count_plan_cache_miss(self) -> None:
        (self._values or self.open()).add(PLAN_CACHE_MISSES)

    def count_transform(self) -> None:
        (self._values or self.open()).add(TRANSFORMS)

    def count_flow_run(self) -> None:
        (self._values or self.open()).add(FLOW_RUNS)

    def close(self) -> None:
        """Leave the files to the next process; a later event opens them again."""
        with self._lock:
            values = self._values
            self._values = None
        if values is not None:
            values.close()

    def reset_after_fork(self) -> None:
        """Begin anew in a child of a process that has counted: these files are its parent's."""
        self._lock = Lock()
        self._values = None
