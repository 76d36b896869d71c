"""The number of statements, and the time that they take in each thread."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager

from cms.database.statement_names import name_of
from cms.metrics.metrics import Metrics
from cms.tracing import process as tracing


class _Thread(threading.local):
    seconds = 0.0


class StatementMeter:
    """Measures the statements of all connections of a process; without metrics it counts none."""

    def __init__(self, metrics: Metrics | None = None) -> None:
        self._metrics = metrics
        self._thread = _Thread()

    @property
    def seconds(self) -> float:
        """The time that statements of this thread have taken so far."""
        return self._thread.seconds

    @contextmanager
    def measured(self, *texts: str) -> Iterator[None]:
        """Note the statements that the block sends together, and that end with it."""
        began = time.perf_counter()
        try:
            yield
        except BaseException as error:
            self.note(texts, time.perf_counter() - began, error)
            raise
        self.note(texts, time.perf_counter() - began)

    @contextmanager
    def transaction(self, block: AbstractContextManager[object]) -> Iterator[None]:
        """Add the time that a block takes to be entered and to be left."""
        began = time.perf_counter()
        try:
            with block:
                self.add(time.perf_counter() - began)
                try:
                    yield
                finally:
                    began = time.perf_counter()
        finally:
            self.add(time.perf_counter() - began)

    def add(self, seconds: float) -> None:
        """Add a time to that of this thread."""
        self._thread.seconds += seconds

    def note(
        self, texts: Sequence[str], seconds: float, error: BaseException | None = None
    ) -> None:
        """Note the end of statements, or the error that ended them."""
        self._thread.seconds += seconds
        for text in texts:
            if self._metrics is not None:
                self._metrics.count_statement()
            if tracing.active is not None:
                tracing.active.add_statement(name_of(text), seconds=seconds, error=error)
