"""The log of a process: a line for each event, for people or as JSON (setting LOG_STYLE)."""

from __future__ import annotations

import logging
import select
import sys
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from functools import lru_cache
from typing import TextIO

from cms import jsontext
from cms.config import Config
from cms.processes.polled_descriptor import PolledDescriptor
from cms.processes.slots import this_thread

LEVELS = {
    # The names of the setting LOG_LEVEL; Python has no level below debug.
    "fatal": logging.CRITICAL,
    "error": logging.ERROR,
    "warn": logging.WARNING,
    "info": logging.INFO,
    "debug": logging.DEBUG,
    "trace": logging.DEBUG,
}
_LEVEL_NAMES = {"CRITICAL": "fatal", "WARNING": "warn"}
"""The names in `LEVELS` of levels that Python calls otherwise."""

_FIELDS = ("request", "method", "path", "status", "ms")
"""The fields of a request's line besides those of every line."""

_service_log = logging.getLogger("cms")
_access_log = logging.getLogger("cms.access")


def writes_requests_itself() -> bool:
    """Tell whether the lines of requests go to the service's own handler, or nowhere.

    Handlers of an application around the service may wait for anything.
    """
    return not _access_log.isEnabledFor(logging.INFO) or _own_handler() is not None


def logs_json() -> bool:
    """Tell whether `start_logging` has made the log of this process JSON."""
    formatters = [handler.formatter for handler in _service_log.handlers]
    return any(isinstance(formatter, JsonFormatter) for formatter in formatters)


def log_request(request: str, method: str, path: str, status: int, seconds: float) -> None:
    """Write the line of an answered request, by its id, where requests are logged.

    A log record takes five times as long as the line, so the line is written directly, unless the
    logging of requests has been reconfigured.
    """
    if not _access_log.isEnabledFor(logging.INFO):
        return
    milliseconds = round(seconds * 1000, 2)
    fields = dict(zip(_FIELDS, (request, method, path, status, milliseconds), strict=True))
    handler = _own_handler()
    if handler is None:
        _access_log.info("%s %s %s", method, path, status, extra=fields)
        return
    try:
        handler.write_request(fields)
    except (OSError, ValueError):
        return  # the line is lost, but the request still gets its answer


def _own_handler() -> LogHandler | None:
    """Return the service's handler, None where requests are logged in any other way."""
    # Somebody who embeds the service may have added handlers, filters or other loggers: their
    # records must be complete.
    if (
        _access_log.handlers
        or _access_log.filters
        or not _access_log.propagate
        or _service_log.propagate
    ):
        return None
    if len(_service_log.handlers) != 1:
        return None
    handler = _service_log.handlers[0]
    if isinstance(handler, LogHandler) and handler.is_unmodified:
        return handler
    return None


def start_logging(config: Config) -> None:
    """Send the log to standard error, in the style and from the level of the settings."""
    handler = LogHandler(JsonFormatter() if config.log_style == "json" else PrettyFormatter())
    level = LEVELS[config.log_level]
    # The driver's pool warns of a database that does not answer. Without a handler Python would
    # print that in a style of its own.
    library_level = max(level, logging.WARNING)
    levels = {
        "cms": level,
        "psycopg": library_level,
        "procrastinate": library_level,
        "asyncio": library_level,
    }
    for name, logger_level in levels.items():
        logger = logging.getLogger(name)
        # In place of all others: a second call, or a library that has added its own, must not
        # double the lines.
        logger.handlers[:] = [handler]
        logger.propagate = False
        logger.setLevel(logger_level)
    logging.getLogger("psycopg.pool").filters[:] = [RepeatFilter()]


class RepeatFilter(logging.Filter):
    """Lets one record of each kind pass in ten seconds.

    A connection pool warns at every attempt to connect, several times a second.
    """

    SECONDS = 10

    def __init__(self) -> None:
        super().__init__()
        self._until: dict[str, float] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        # The message before its arguments are filled in: records of a kind share it.
        if record.created < self._until.get(record.msg, 0):
            return False
        self._until[record.msg] = record.created + self.SECONDS
        return True


class JsonFormatter(logging.Formatter):
    """One JSON object for each line, for machines."""

    def format(self, record: logging.LogRecord) -> str:
        fields = _fields_of(record)
        if record.exc_info:
            fields["error"] = self.formatException(record.exc_info)
        return self.line(record.created, record.levelname, record.getMessage(), fields)

    def line(self, created: float, level: str, message: str, fields: Mapping[str, object]) -> str:
        time_text = datetime.fromtimestamp(created, UTC).isoformat(timespec="milliseconds")
        entry = {"time": time_text, "level": _level_name(level), "message": message, **fields}
        return jsontext.dumps(entry).decode()


class PrettyFormatter(logging.Formatter):
    """Time, level and message, for people."""

    def format(self, record: logging.LogRecord) -> str:
        line = self.line(record.created, record.levelname, record.getMessage(), _fields_of(record))
        if not record.exc_info:
            return line
        return f"{line}\n{self.formatException(record.exc_info)}"

    def line(self, created: float, level: str, message: str, fields: Mapping[str, object]) -> str:
        time_taken = f" {fields['ms']} ms" if "ms" in fields else ""
        request = f" [{fields['request']}]" if "request" in fields else ""
        # A client could forge a line with a line break in its path.
        if not message.isprintable() or not message.isascii() or "\\" in message:
            message = message.encode("unicode_escape").decode()
        return f"{_time_of_day(int(created))} {_level_name(level):6}{message}{time_taken}{request}"


class LogHandler(logging.StreamHandler[TextIO]):
    """Writes to standard error."""

    def __init__(self, line_formatter: JsonFormatter | PrettyFormatter) -> None:
        super().__init__(sys.stderr)
        self.has_room = _room_of(sys.stderr)
        """Tells whether a line can be written without waiting."""
        self._line_formatter = line_formatter
        self.setFormatter(line_formatter)

    @property
    def is_unmodified(self) -> bool:
        """Whether the handler is open, and no setting of it looks at records."""
        is_open = self.stream is not None
        return (
            is_open
            and not self.filters
            and self.level <= logging.INFO
            and self.formatter is self._line_formatter
        )

    def handle(self, record: logging.LogRecord) -> bool:
        """Write a record; a thread that must not wait leaves out one for which it would have to."""
        # While nobody reads the log, all threads wait to write to it, one with the handler's lock.
        # The event loop goes on: it ends clients that are too slow, and stops when it is asked to.
        return self._is_possible() and super().handle(record)

    def write_request(self, fields: Mapping[str, object]) -> None:
        """Write the line of a request without a log record, or leave it out as `handle` does."""
        if not self._is_possible():
            return
        message = f"{fields['method']} {fields['path']} {fields['status']}"
        self.stream.write(
            self._line_formatter.line(time.time(), "INFO", message, fields) + self.terminator
        )
        # A process that is killed must not take lines along. Standard error has flushed the line.
        if not getattr(self.stream, "line_buffering", False):
            self.stream.flush()

    def _is_possible(self) -> bool:
        return not this_thread.must_not_wait or self.has_room()


def _room_of(stream: TextIO | None) -> Callable[[], bool]:
    """Return what tells whether a stream can be written; one in memory always can, and none."""
    # A pipe that is not full takes more than a line of the event loop, unless that has a long
    # traceback. Only lines that others write in that very moment could take the room away.
    try:
        # A process without a console has no standard error.
        descriptor = stream.fileno() if stream else None
    except (OSError, ValueError):
        descriptor = None
    if descriptor is None:
        return lambda: True
    return PolledDescriptor(descriptor, select.POLLOUT).is_ready


def _fields_of(record: logging.LogRecord) -> dict[str, object]:
    return {key: getattr(record, key) for key in _FIELDS if hasattr(record, key)}


def _level_name(level: str) -> str:
    return _LEVEL_NAMES.get(level, level.lower())


@lru_cache(maxsize=1)  # a busy process writes many lines within one second
def _time_of_day(second: int) -> str:
    return datetime.fromtimestamp(second).strftime("%H:%M:%S")
