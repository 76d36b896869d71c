"""Which sites' pages may act for whoever is logged in by a cookie (decisions, section 10)."""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import urlsplit

import falcon

from cms.config import Config
from cms.errors import forbidden

SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS", "SEARCH", "QUERY"})
"""What changes nothing; SEARCH and QUERY come from other sites after a preflight only."""


@dataclass(frozen=True, slots=True)
class Origins:
    """The service's own origin, and those that the settings name: one that is anybody's does not count."""

    service_origin: str
    allowed: frozenset[str]

    @classmethod
    def from_config(cls, config: Config) -> Origins:
        """Return the origins of the settings."""
        allowed = config.cors_origin if config.cors_enabled and config.cors_credentials else ()
        return cls(origin_of(config.public_url) or "", frozenset(allowed) - {"*"})

    def require(self, request: falcon.Request) -> None:
        """Raise `Refused` FORBIDDEN unless the request says that it comes from a page of one of these.

        Browsers say so in `Origin` with every request that writes; the host that a request is sent to is their word
        too. What names neither Origin nor Referer is no browser's doing, and has no use for a cookie.
        """
        said = request.get_header("Origin")
        found = origin_of(said or request.get_header("Referer") or "")
        if found is None or (
            found not in (self.service_origin, _own_origin(request)) and found not in self.allowed
        ):
            raise forbidden()


def origin_of(address: str) -> str | None:
    """Return scheme, host and port of an address as browsers write them; None for what has none."""
    try:
        parts = urlsplit(address)
        port = parts.port
    except ValueError:
        return None
    if parts.scheme not in ("http", "https") or not parts.hostname:
        return None
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    usual = {"http": 80, "https": 443}[parts.scheme]
    return (
        f"{parts.scheme}://{host}" if port in (None, usual) else f"{parts.scheme}://{host}:{port}"
    )


def _own_origin(request: falcon.Request) -> str | None:
    return origin_of(f"{request.scheme}://{request.get_header('Host') or request.netloc}")
