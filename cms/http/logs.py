"""The log of a process: one line an event, for people or as JSON (setting LOG_STYLE)."""

from __future__ import annotations

import logging
import sys
from datetime import UTC, datetime
from functools import lru_cache

from cms import jsontext
from cms.config import Config

LEVELS = {
    "fatal": logging.CRITICAL,
    "error": logging.ERROR,
    "warn": logging.WARNING,
    "info": logging.INFO,
    "debug": logging.DEBUG,
    "trace": logging.DEBUG,
}
_FACTS = ("request", "method", "path", "status", "ms")


def start_logging(config: Config) -> None:
    """Send the service's log to standard error, in the style and from the level of the settings."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines() if config.log_style == "json" else PrettyLines())
    level = LEVELS[config.log_level]
    # The driver's pool warns of a database that does not answer; Python would print that in a style of its own.
    others = max(level, logging.WARNING)
    for name, least in (("cms", level), ("psycopg", others), ("procrastinate", others), ("asyncio", others)):
        log = logging.getLogger(name)
        log.handlers[:] = [handler]
        log.propagate = False
        log.setLevel(least)
    # What no line shows takes longer than the line: the thread, the process, the place in the code.
    logging.logThreads = logging.logProcesses = logging.logMultiprocessing = False
    logging._srcfile = None


class JsonLines(logging.Formatter):
    """One JSON object a line, for machines."""

    def format(self, record: logging.LogRecord) -> str:
        entry: dict[str, object] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "message": record.getMessage(),
        }
        entry |= {key: getattr(record, key) for key in _FACTS if hasattr(record, key)}
        if record.exc_info:
            entry["error"] = self.formatException(record.exc_info)
        return jsontext.dumps(entry).decode()


class PrettyLines(logging.Formatter):
    """Time, level and message, for people; line breaks in what a client sent cannot forge a line."""

    def format(self, record: logging.LogRecord) -> str:
        moment = _clock(int(record.created))
        message = record.getMessage().encode("unicode_escape").decode()
        facts = f" {record.ms} ms" if hasattr(record, "ms") else ""
        request = f" [{record.request}]" if hasattr(record, "request") else ""
        trace = f"\n{self.formatException(record.exc_info)}" if record.exc_info else ""
        return f"{moment} {record.levelname.lower():8}{message}{facts}{request}{trace}"


@lru_cache(maxsize=1)
def _clock(second: int) -> str:
    return datetime.fromtimestamp(second).strftime("%H:%M:%S")
