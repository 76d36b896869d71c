"""The log of a run, without secrets and with a limited size."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import NamedTuple

from cms import jsontext
from cms.flows.engine import StepLog
from cms.flows.redaction import Secrets, truncate
from cms.text_shapes import MASK

MAX_LOG_BYTES = 2**18
"""The bytes that the steps of one run may take as JSON; data and result may take a quarter each."""

_VALUE_BYTES = MAX_LOG_BYTES // 4
_SMALL = 2**8
"""Bytes of a value that is not worth cutting, even if there is no room."""


class RunLog(NamedTuple):
    """The log of a run as JSON: its data, its steps, and its last result."""

    data: str | None = None
    steps: str | None = None
    result: str | None = None


NO_LOG = RunLog()


class _RemainingSpace:
    """The bytes that a log has left; values that do not fit are cut."""

    def __init__(self, size: int) -> None:
        self._left = size

    def fit(self, value: object, secrets: Secrets) -> object:
        """Return a value without secrets; of one that is too large, the beginning of its JSON."""
        limit = max(self._left, _SMALL)
        length = _length(value)
        is_cut = length is None or length > limit
        # Looking for secrets takes longer than all else: only what is kept is searched.
        masked = secrets.masked(truncate(value, limit).value if is_cut else value)
        # Measured anew: masks are shorter or longer than what they stand for.
        size = len(jsontext.dumps(masked))
        if masked != MASK and (is_cut or size > limit):
            masked = _cut(masked, self._left, length or size)
        self._left -= min(size, self._left)
        return masked


def _length(value: object) -> int | None:
    """Return the bytes of a value as JSON, None where it cannot be written as it is."""
    try:
        return len(jsontext.dumps(value))
    except TypeError:  # nested too deeply, or half a character
        return None


def run_log(data: object, steps: Iterable[StepLog], result: object, secrets: Secrets) -> RunLog:
    """Return the log of a run; what is too large for it is cut, and says so."""
    # The steps share their bytes; data and result have their own, so that many steps cannot push
    # them out.
    room = _RemainingSpace(MAX_LOG_BYTES)
    entries = [_entry(step, room, secrets) for step in steps]
    return RunLog(
        as_json(_RemainingSpace(_VALUE_BYTES).fit(data, secrets)),
        as_json(entries),
        as_json(_RemainingSpace(_VALUE_BYTES).fit(result, secrets)),
    )


def _entry(step: StepLog, room: _RemainingSpace, secrets: Secrets) -> dict[str, object]:
    return {
        "operation": step.operation,
        "key": step.key,
        "type": step.type,
        "status": step.status,
        "options": room.fit(step.options, secrets),
        "result": room.fit(step.result, secrets),
        "log": [room.fit(line, secrets) for line in step.lines],
        "date_started": utc_text(step.began),
        "milliseconds": step.milliseconds,
    }


def _cut(value: object, size: int, length: int) -> str:
    text = value if isinstance(value, str) else as_json(value)
    # As a text in JSON, its quotes and backslashes take twice their size.
    return f"{text[: size // 2]} … cut: {length} bytes"


def as_json(value: object) -> str:
    return jsontext.dumps(value).decode()


def utc_text(moment: datetime) -> str:
    """Return a moment in UTC as answers write it."""
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
