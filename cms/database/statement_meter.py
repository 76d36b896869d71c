"""The number of statements, the time that they take in each thread, and their names in traces."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import cache, partial

from cms.caches import bounded_cache
from cms.database.statements import all_statements
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
                tracing.active.add_statement(statement_name(text), seconds=seconds, error=error)


# Names of statements for traces: what a statement does, without its text

_IDENTIFIER = r'"(?:[^"]|"")+"'
_TABLE = rf"{_IDENTIFIER}(?:\.{_IDENTIFIER})?"
_WRITE = re.compile(rf"\b(INSERT INTO|UPDATE|DELETE FROM) ({_TABLE})")
_READ = re.compile(rf"\bFROM ({_TABLE})")

_MAX_BYTES = 2**21
_names = bounded_cache(_MAX_BYTES)


def statement_name(text: str) -> str:
    """Return the name of a fixed statement; of any other its verb and its first table."""
    name: str = _names.setdefault_with(text, partial(_statement_name, text))
    return name


def _statement_name(text: str) -> str:
    fixed_name = _fixed_names().get(text)
    if fixed_name is not None:
        return fixed_name
    # First, because a write may read other tables as well.
    if write := _WRITE.search(text):
        return f"{write[1].partition(' ')[0]} {_plain(write[2])}"
    verb = text.split(maxsplit=1)[0].upper()
    # The common frame of reads names its one table without quotes.
    table = _READ.search(text)
    if table is None:
        return verb
    return f"{verb} {_plain(table[1])}"


def _plain(table: str) -> str:
    return table.replace('"', "")


@cache
def _fixed_names() -> Mapping[str, str]:
    return {text: name for name, text in all_statements().items()}
