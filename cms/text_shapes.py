"""Shapes of texts that several packages know: colours, UUIDs, numbers, hosts, the mask."""

from __future__ import annotations

import re

MASK = "**********"
"""The text that answers and printed settings show in place of a secret."""

# #rgb and #rrggbb, each also with a share of opacity.
COLOR = re.compile(r"#(?:[0-9a-fA-F]{3,4}|[0-9a-fA-F]{6}|[0-9a-fA-F]{8})")

UUID = "[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"
"""The pattern of a UUID in lower case, to be part of others."""

WHOLE_NUMBER = re.compile(r"[0-9]{1,9}")
"""A number in a query string: int() also reads signs, underscores and digits of other scripts."""

DEFAULT_PORTS = {"http": 80, "https": 443}
"""The port of a URL that names none, by its scheme."""


def url_host(host: str) -> str:
    """Return a host as it stands in a URL: an IPv6 address in brackets."""
    return f"[{host}]" if ":" in host else host
