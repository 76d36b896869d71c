"""Where a browser may go once a login is over: the addresses that a provider's settings name."""

from __future__ import annotations

import re
from urllib.parse import urlsplit

from cms.config.providers import Provider
from cms.errors import invalid_query
from cms.text_shapes import DEFAULT_PORTS, url_host

# Browsers take a backslash for a slash, and leave out line breaks and tabs.
_NEVER_IN_A_REDIRECT = re.compile(r"[\x00-\x20\x7f-\U0010ffff\\#]")
MAX_LENGTH = 2_000
"""A redirect is kept in a cookie, and browsers keep cookies of 4,096 bytes."""


def checked_redirect(provider: Provider, redirect: str | None) -> str | None:
    """Return the address of `redirect`; raises `Refused` INVALID_QUERY for one not on the list.

    It equals an address of the list in scheme, host, port and path, and may have a query.
    """
    if redirect is None:
        return None
    target = _parts_of(redirect)
    if target is None or target not in map(_parts_of, provider.redirect_allow_list):
        raise invalid_query('"redirect" is not an allowed address', parameter="redirect")
    return redirect


def with_reason(redirect: str, code: str) -> str:
    """Return the address with the code of a refusal in its query."""
    separator = "&" if "?" in redirect else "?"
    return f"{redirect}{separator}reason={code}"


def _parts_of(address: str) -> tuple[str, str, int, str] | None:
    """Return scheme, host, port and path of an address; None where browsers may see another one."""
    if len(address) > MAX_LENGTH or _NEVER_IN_A_REDIRECT.search(address):
        return None
    try:
        parts = urlsplit(address)
        port = parts.port
    except ValueError:
        return None
    if parts.scheme not in DEFAULT_PORTS or not parts.hostname:
        return None
    host = url_host(parts.hostname)
    # Nothing else may stand beside host and port: no user, and no text behind a bracket.
    if parts.netloc.lower() not in (host, f"{host}:{port}"):
        return None
    if port is None:
        port = DEFAULT_PORTS[parts.scheme]
    return parts.scheme, host, port, parts.path.rstrip("/")
