"""The sites whose pages may act for a user who is logged in by a cookie."""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import urlsplit

import falcon

from cms.config import Config
from cms.errors import forbidden
from cms.text_shapes import DEFAULT_PORTS, url_host

SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS", "SEARCH", "QUERY"})
"""Methods that change nothing.

SEARCH and QUERY have a body, but browsers send them to other sites only after a preflight.
"""


@dataclass(frozen=True, slots=True)
class Origins:
    """The service's own origin, and those that the settings name; `*` does not count."""

    service_origin: str
    allowed: frozenset[str]

    @classmethod
    def from_config(cls, config: Config) -> Origins:
        """Return the origins that the settings allow."""
        # Only sites that may read answers to requests with cookies may send requests with cookies.
        allowed = config.cors_origin if config.cors_enabled and config.cors_credentials else ()
        return cls(origin_of(config.public_url) or "", frozenset(allowed) - {"*"})

    def require(self, request: falcon.Request) -> None:
        """Raise `Refused` FORBIDDEN unless the request comes from a page of one of these origins.

        Browsers send `Origin` with every request that writes, and the true address in `Host`. A
        request with neither `Origin` nor `Referer` does not come from a browser, and needs no
        cookie.
        """
        page = request.get_header("Origin") or request.get_header("Referer") or ""
        origin = origin_of(page)
        # "null", the origin of a sandboxed page, has no host either.
        if origin is None:
            raise forbidden()
        own_origins = (self.service_origin, _own_origin(request))
        if origin not in own_origins and origin not in self.allowed:
            raise forbidden()


def origin_of(address: str) -> str | None:
    """Return scheme, host and port of an address as browsers write them, None without a host."""
    try:
        parts = urlsplit(address)
        port = parts.port
    except ValueError:
        return None
    if parts.scheme not in ("http", "https") or not parts.hostname:
        return None
    # urlsplit removes the brackets of an IPv6 address.
    host = url_host(parts.hostname)
    default_port = DEFAULT_PORTS[parts.scheme]
    if port in (None, default_port):
        return f"{parts.scheme}://{host}"
    return f"{parts.scheme}://{host}:{port}"


def _own_origin(request: falcon.Request) -> str | None:
    return origin_of(f"{request.scheme}://{request.get_header('Host') or request.netloc}")
