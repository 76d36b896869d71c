"""Conditional and partial requests for a file's content (RFC 9110, sections 13 and 14)."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import NamedTuple

from cms.http.requests.request import Request

# 18 digits fit 64 bits; a longer number is no position in any file.
_RANGE = re.compile(r"bytes\s*+=\s*+(\d{0,18})\s*+-\s*+(\d{0,18})", re.ASCII)


class RangeNotSatisfiable(Exception):
    """A range begins behind the end of the content."""


class ByteRange(NamedTuple):
    """A part of a content, in bytes."""

    start: int
    length: int


def is_not_modified(request: Request, tag: str, modified: datetime) -> bool:
    """Tell whether the client already has this version of the content, which is answered 304."""
    header = request.get_header("If-None-Match")
    # With tags the time does not count (RFC 9110, section 13.2.2): it is exact to the second only.
    if header is not None:
        # Weak comparison (RFC 9110, section 13.1.2): a copy that differs in form only is current as
        # well.
        client_tags = [part.strip().removeprefix("W/") for part in header.split(",")]
        return header.strip() == "*" or f'"{tag}"' in client_tags
    since = _http_time(request.get_header("If-Modified-Since"))
    return since is not None and modified.replace(microsecond=0) <= since


def byte_range_of(request: Request, tag: str, modified: datetime, *, size: int) -> ByteRange | None:
    """Return the requested part, None for the whole content.

    A range that cannot be read, names several parts or belongs to another version is ignored.
    Raises `RangeNotSatisfiable`.
    """
    header = request.get_header("Range")
    if header is None:
        return None
    # Without both numbers "bytes=-" asks for nothing. A HEAD is answered as without a range.
    bounds = _RANGE.fullmatch(header.strip().lower())
    if bounds is None or bounds.groups() == ("", "") or request.sent_method != "GET":
        return None
    # A part of this version would not fit the part of another one that the client has.
    if not _if_range_matches(request.get_header("If-Range"), tag, modified):
        return None
    return _byte_range(bounds[1], bounds[2], size)


def _byte_range(first: str, last: str, size: int) -> ByteRange | None:
    if not first:
        # "-500" asks for the last 500 bytes.
        # More than there is means all of it.
        length = min(int(last), size)
        if not length:
            raise RangeNotSatisfiable
        return ByteRange(size - length, length)
    start = int(first)
    end = size - 1
    if last:
        # Malformed, and so ignored, while a start behind the end is refused with 416.
        if int(last) < start:
            return None
        end = min(int(last), end)
    if start >= size:
        raise RangeNotSatisfiable
    return ByteRange(start, end - start + 1)


def _if_range_matches(header: str | None, tag: str, modified: datetime) -> bool:
    """Tell whether If-Range names this version: by its strong tag or its exact time of change."""
    if header is None:
        return True
    return header.strip() == f'"{tag}"' or _http_time(header) == modified.replace(microsecond=0)


def _http_time(header: str | None) -> datetime | None:
    if not header:
        return None
    try:
        time = parsedate_to_datetime(header)
    except (ValueError, OverflowError):
        return None
    # "-0000" means UTC as well, but is parsed to a time without a zone.
    if time.tzinfo is None:
        return time.replace(tzinfo=UTC)
    return time
