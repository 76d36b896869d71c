"""The log is not filled by what comes again and again."""

from __future__ import annotations

import logging

from cms.logs import RepeatFilter


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
