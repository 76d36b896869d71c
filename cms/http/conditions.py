"""Conditional and partial requests for a content (RFC 9110, sections 13 and 14)."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

import falcon

_RANGE = re.compile(r"bytes\s*=\s*(\d{0,18})\s*-\s*(\d{0,18})", re.ASCII)


class RangeNotSatisfiable(Exception):
    """A range that begins behind the end of the content."""


def is_not_modified(request: falcon.Request, tag: str, modified: datetime) -> bool:
    """Tell whether the client holds this very content: the answer is 304 then."""
    tags = request.get_header("If-None-Match")
    if tags is not None:
        return tags.strip() == "*" or f'"{tag}"' in (
            one.strip().removeprefix("W/") for one in tags.split(",")
        )
    since = _http_time(request.get_header("If-Modified-Since"))
    return since is not None and modified.replace(microsecond=0) <= since


def byte_range_of(
    request: falcon.Request, tag: str, modified: datetime, *, size: int
) -> tuple[int, int] | None:
    """Return start and length of the part that is asked for, None for all of it. Raises `RangeNotSatisfiable`.

    A range that is not understood, names several parts or is of another content is as if it were not there.
    """
    said = _RANGE.fullmatch((request.get_header("Range") or "").strip().lower())
    if said is None or said.groups() == ("", "") or request.context.method != "GET":
        return None
    if not _if_range_matches(request.get_header("If-Range"), tag, modified):
        return None
    return _byte_range(said[1], said[2], size)


def _byte_range(first: str, last: str, size: int) -> tuple[int, int] | None:
    if not first:
        length = min(int(last), size)
        if not length:
            raise RangeNotSatisfiable
        return size - length, length
    start, end = int(first), min(int(last), size - 1) if last else size - 1
    if last and int(last) < start:
        return None
    if start >= size:
        raise RangeNotSatisfiable
    return start, end - start + 1


def _if_range_matches(said: str | None, tag: str, modified: datetime) -> bool:
    """Tell whether If-Range names this content: by its strong tag, or by the very second of its change."""
    if said is None:
        return True
    return said.strip() == f'"{tag}"' or _http_time(said) == modified.replace(microsecond=0)


def _http_time(said: str | None) -> datetime | None:
    try:
        found = parsedate_to_datetime(said) if said else None
    except (ValueError, OverflowError):
        return None
    return found.replace(tzinfo=UTC) if found and found.tzinfo is None else found
