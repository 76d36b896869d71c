"""Requests with their state: an id, the time of the beginning, and the caller."""

from __future__ import annotations

import random
import re
import time
from collections.abc import Mapping
from functools import lru_cache
from types import MappingProxyType
from typing import Any

import falcon

from cms.access.ip_addresses import address
from cms.database.error_mapping import Stale, UnexpectedError
from cms.errors import Refused
from cms.http.requests.authenticator import Authenticator
from cms.rate_limits.limiter import RateLimiter
from cms.rate_limits.windows import Usage
from cms.store.identity import ANONYMOUS, ClientInfo, Identity
from cms.store.store import Store
from cms.tracing import RequestSpan

# SEARCH means the same as the newer QUERY, and only QUERY is known to Falcon.
_ALIASES: Mapping[str, str] = MappingProxyType({"SEARCH": "QUERY"})
# Falcon answers 400 to methods that it does not know. It knows TRACE, which no resource serves:
# an unknown method that is routed as TRACE is answered 405.
UNSUPPORTED = "TRACE"
_CONTENT_HEADERS = ("CONTENT_TYPE", "CONTENT_LENGTH")
"""Headers that WSGI passes under other names than all others."""
# As proxies and tracing tools make them: UUIDs, hexadecimal digits, words with dots and colons.
_REQUEST_ID = re.compile(r"[A-Za-z0-9_.:-]{1,100}")
_KNOWN = frozenset(falcon.COMBINED_METHODS) - {"WEBSOCKET"}


class Request(falcon.Request):
    """A request whose method Falcon can route, with what the service knows of it.

    `sent_method` is the method that the client sent, `digest` the digest of a body that was read.
    `usage` is what is left of the rate limits, None where there are none. `span` is that of its
    trace, where there is one. `statement_seconds` is the time that statements of the thread had
    taken before the request, where `Server-Timing` is asked for. `trusted_proxies` is how many
    proxies before the service are trusted to say where a request came from.
    """

    __slots__ = (
        "_identity",
        "authenticator",
        "began",
        "digest",
        "id",
        "limiter",
        "sent_method",
        "span",
        "statement_seconds",
        "trusted_proxies",
        "usage",
    )

    def __init__(self, env: dict[str, Any], options: falcon.RequestOptions | None = None) -> None:
        self.began = time.perf_counter()
        super().__init__(env, options=options)
        self.id = request_id_of(env)
        self.sent_method = self.method
        # Falcon chooses the responder by `method`.
        if self.method not in _KNOWN:
            self.method = _ALIASES.get(self.method, UNSUPPORTED)
        self.digest = b""
        self.span: RequestSpan | None = None
        self.statement_seconds: float | None = None
        # The middleware sets these.
        self.authenticator: Authenticator | None = None
        self.trusted_proxies = 0
        self.limiter: RateLimiter | None = None
        self.usage: Usage | None = None
        self._identity: Identity | None = None

    @property
    def address(self) -> str:
        """The address that the request came from, as far as the trusted proxies say."""
        return address_of(self.env, trusted_proxies=self.trusted_proxies)

    @property
    def client(self) -> ClientInfo:
        """Where the request came from."""
        return ClientInfo(
            self.address,
            self.env.get("HTTP_USER_AGENT"),
            self.env.get("HTTP_ORIGIN"),
        )

    @property
    def identity(self) -> Identity:
        """Who calls; raises `Refused` INVALID_TOKEN.

        The identity is looked up when a resource asks for it: otherwise a client that sends an
        expired token with every request could not log in again. It is looked up once: the
        application around the service may take long to answer.
        """
        if self._identity is None:
            identity = self.authenticator.identify(self) if self.authenticator else ANONYMOUS
            # Set only after success: a second call after a refusal must be refused as well, and not
            # find an anonymous caller.
            self._identity = identity.with_client(self.client)
        return self._identity

    def get_header(  # type: ignore[override]  # in place of all of Falcon's overloads
        self,
        name: str,
        required: bool = False,  # noqa: FBT001  # Falcon's signature
        default: str | None = None,
    ) -> str | None:
        """Return a header; one that is missing costs no exception, as it does in Falcon."""
        value: str | None = self.env.get(_environ_name(name), default)
        if value is None and required:
            return super().get_header(name, required)
        return value


@lru_cache(maxsize=256)  # names come from the code alone
def _environ_name(header: str) -> str:
    name = header.upper().replace("-", "_")
    if name in _CONTENT_HEADERS:
        return name
    return f"HTTP_{name}"


def request_id_of(environ: Mapping[str, Any]) -> str:
    """Return the id that a client has given its request, else a new one."""
    client_id: str | None = environ.get("HTTP_X_REQUEST_ID")
    # Any other text could forge a line of the log, or a header.
    if client_id and _REQUEST_ID.fullmatch(client_id):
        return client_id
    # Not a secret, so the fast generator will do; Python seeds it anew after a fork.
    return f"{random.getrandbits(64):016x}"


def address_of(environ: Mapping[str, Any], *, trusted_proxies: int) -> str:
    """Return the address that the outermost trusted proxy saw, else that of the connection.

    Entries of X-Forwarded-For further to the left can be written by anybody.
    """
    forwarded = environ.get("HTTP_X_FORWARDED_FOR") if trusted_proxies else None
    if forwarded:
        # Each proxy appends the address that it saw. With two proxies, `1.2.3.4, 198.51.100.7,
        # 10.0.0.2` came from 198.51.100.7; the first entry is only a claim of the client.
        entries = forwarded.split(",")[-trusted_proxies:]
        client_ip = _address(entries[0])
        if client_ip is not None:
            return client_ip
    # Behind a Unix socket the server reports none that could be parsed.
    connected: str = environ.get("REMOTE_ADDR", "127.0.0.1")
    return address(connected) or connected


def _address(text: str) -> str | None:
    """Read an address with or without a port: 192.0.2.1, 192.0.2.1:80, 2001:db8::1,
    [2001:db8::1]:80.
    """
    host = text.strip()
    if host.startswith("["):
        return address(host[1:].partition("]")[0])
    # An address of IPv6 has more colons than the one before a port.
    if host.count(":") == 1:
        host = host.partition(":")[0]
    return address(host)


def is_administrator(store: Store, request: Request) -> bool:
    """Tell whether an administrator calls; False for credentials that are no good."""
    try:
        identity = request.identity
        # Most calls come from load balancers, whose calls need no lookup of the caller.
        if identity.is_anonymous:
            return False
        store.require_administrator(identity)
    except (Refused, Stale, UnexpectedError):
        return False
    return True
