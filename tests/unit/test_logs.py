"""The log is not filled by what comes again and again, and no event loop waits for its reader."""

from __future__ import annotations

import logging
import sys
import threading
from collections.abc import Iterator

import pytest

from cms.logs import LogHandler, PrettyFormatter, RepeatFilter
from cms.processes.slots import this_thread
from tests.full_pipes import FullPipe, full_pipe


def record(message: str, second: float) -> logging.LogRecord:
    record = logging.LogRecord("psycopg.pool", logging.WARNING, "", 0, message, None, None)
    record.created = second
    return record


def test_a_warning_of_one_kind_comes_once_in_ten_seconds() -> None:
    seldom = RepeatFilter()
    assert [seldom.filter(record("cannot connect", second)) for second in (0, 1, 9, 10, 11)] == [
        True,
        False,
        False,
        True,
        False,
    ]
    assert seldom.filter(record("another", 11))


@pytest.fixture
def pipe() -> Iterator[FullPipe]:
    with full_pipe() as pipe:
        yield pipe


@pytest.fixture
def handler(pipe: FullPipe, monkeypatch: pytest.MonkeyPatch) -> Iterator[LogHandler]:
    """The handler of a log that nobody reads."""
    with open(pipe.write_end, "w", closefd=False, buffering=1) as log:
        monkeypatch.setattr(sys, "stderr", log)
        yield LogHandler(PrettyFormatter())


def write(handler: LogHandler, message: str, *, must_not_wait: bool) -> None:
    this_thread.must_not_wait = must_not_wait
    handler.handle(record(message, 0))
    handler.write_request({"method": "GET", "path": message, "status": 200})


def writing(handler: LogHandler, message: str, *, must_not_wait: bool) -> threading.Thread:
    """Begin to write in a thread, which gets a moment to end."""
    thread = threading.Thread(
        target=write, args=[handler, message], kwargs={"must_not_wait": must_not_wait}
    )
    thread.start()
    thread.join(0.3)
    return thread


def test_an_event_loop_leaves_lines_out_while_nobody_reads_the_log(
    handler: LogHandler, pipe: FullPipe
) -> None:
    has_waited = writing(handler, "left out", must_not_wait=True).is_alive()
    pipe.empty()
    assert not has_waited
    writing(handler, "written", must_not_wait=True).join()
    assert pipe.empty().count(b"written") == 2


def test_an_event_loop_waits_for_no_thread_that_waits_for_the_reader(
    handler: LogHandler, pipe: FullPipe
) -> None:
    thread = writing(handler, "written late", must_not_wait=False)
    has_waited = writing(handler, "left out", must_not_wait=True).is_alive()
    is_late = thread.is_alive()
    pipe.empty()
    thread.join()
    assert (has_waited, is_late) == (False, True)
    assert pipe.empty().count(b"written late") == 2
