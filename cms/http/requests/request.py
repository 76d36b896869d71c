"""Requests with their state: an id, the time of the beginning, and the caller."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Mapping
from functools import lru_cache
from types import MappingProxyType
from typing import Any, NoReturn
from urllib.parse import quote

import falcon

from cms.access.ip_addresses import address
from cms.metrics.families import OTHER_METHOD
from cms.rate_limits.windows import Usage
from cms.store.identity import ANONYMOUS, ClientInfo, Identity
from cms.tracing import RequestSpan

# SEARCH means the same as the newer QUERY, and only QUERY is known to Falcon.
_ALIASES: Mapping[str, str] = MappingProxyType({"SEARCH": "QUERY"})
# Falcon answers 400 to methods that it does not know. It knows TRACE, which no resource serves:
# an unknown method that is routed as TRACE is answered 405.
_UNSUPPORTED = "TRACE"
_METHOD_NOT_ALLOWED = 405
_CONTENT_HEADERS = ("CONTENT_TYPE", "CONTENT_LENGTH")
"""Headers that WSGI passes under other names than all others."""
_KNOWN = frozenset(falcon.COMBINED_METHODS) - {"WEBSOCKET"}


class RequestState:
    """The state of one request.

    `method` is the method that the client sent, `digest` the digest of a body that was read. `seal`
    is the key of digests that are stored: a body may hold a password, which nobody must be able to
    guess from them. `usage` is what is left of the rate limits, None where there are none. `span`
    is that of its trace, where there is one. `statement_seconds` is the time that statements of the
    thread had taken before the request, where `Server-Timing` is asked for.
    """

    __slots__ = (
        "_count_account",
        "_find_client",
        "_find_identity",
        "_identity",
        "began",
        "digest",
        "id",
        "method",
        "seal",
        "span",
        "statement_seconds",
        "usage",
    )

    def __init__(self) -> None:
        # Not a secret, so the fast generator will do; Python seeds it anew after a fork.
        self.id = f"{random.getrandbits(64):016x}"
        self.began = time.perf_counter()
        self.method = ""
        self.digest = b""
        self.seal = b""
        self.span: RequestSpan | None = None
        self.statement_seconds: float | None = None
        self._find_identity: Callable[[], Identity] | None = None
        self._identity: Identity | None = None
        self._find_client: Callable[[], ClientInfo] | None = None
        self.usage: Usage | None = None
        self._count_account: Callable[[str], None] | None = None

    @property
    def is_over_limit(self) -> bool:
        """Whether a rate limit has been exceeded."""
        return self.usage is not None and not self.usage.passed

    def count_accounts_with(self, count_account: Callable[[str], None]) -> None:
        """Set the function that counts an attempt to log in to an account."""
        self._count_account = count_account

    def count_account(self, account: str) -> None:
        """Count an attempt to log in to an account; raises `Refused` REQUESTS_EXCEEDED.

        A resource calls this as soon as it has read which account is meant, and before it finds out
        whether there is one.
        """
        if self._count_account:
            self._count_account(account)

    def identify_with(
        self, find_identity: Callable[[], Identity], find_client: Callable[[], ClientInfo]
    ) -> None:
        """Set the functions that find out who calls and from where, called when a resource asks."""
        self._find_identity = find_identity
        self._find_client = find_client

    @property
    def client(self) -> ClientInfo:
        """Where the request came from."""
        if self._find_client:
            return self._find_client()
        return ClientInfo()

    @property
    def identity(self) -> Identity:
        """Who calls; raises `Refused` INVALID_TOKEN.

        The identity is looked up when a resource asks for it: otherwise a client that sends an
        expired token with every request could not log in again. It is looked up once: the
        application around the service may take long to answer.
        """
        if self._identity is None:
            identity = self._find_identity() if self._find_identity else ANONYMOUS
            # Set only after success: a second call after a refusal must be refused as well, and not
            # find an anonymous caller.
            self._identity = identity.with_client(self.client)
        return self._identity

    def end(self) -> None:
        """Forget the functions, once nobody asks any more.

        They hold the request: with them it would wait in memory for the garbage collector.
        """
        self._find_identity = _asked_too_late
        self._find_client = _asked_too_late
        self._count_account = None


def _asked_too_late() -> NoReturn:
    # An anonymous caller, in place of the error, could be taken for the one who has called.
    raise RuntimeError("The caller must be known before the answer is complete")


class Request(falcon.Request):
    """A request whose method Falcon can route."""

    __slots__ = ()
    context_type = RequestState

    def __init__(self, env: dict[str, Any], options: falcon.RequestOptions | None = None) -> None:
        super().__init__(env, options=options)
        self.context.method = self.method
        # Falcon chooses the responder by `request.method`. What the client sent stays in
        # `context.method`, for the log and for errors.
        if self.method not in _KNOWN:
            self.method = _ALIASES.get(self.method, _UNSUPPORTED)

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


def method_label(request: falcon.Request, status: int) -> str:
    """Return the method for metrics, if the route serves it.

    Clients can make up any number of others. Even the two dozen standard methods, on each route,
    would take all the room for series.
    """
    is_served = request.method != _UNSUPPORTED and status != _METHOD_NOT_ALLOWED
    if is_served:
        return str(request.context.method)
    return OTHER_METHOD


def mount_path(request: falcon.Request) -> str:
    """Return the prefix under which the service is mounted, encoded as in addresses.

    A server or middleware may take it from the target of a request, and a semicolon would end the
    path of a cookie.
    """
    return quote(request.root_path, safe="/~!$&'()*+,:=@")


def client_of(request: falcon.Request, *, trusted_proxies: int = 0) -> ClientInfo:
    """Return where a request came from, as far as the trusted proxies before the service say."""
    return ClientInfo(
        client_address(request, trusted_proxies=trusted_proxies),
        request.env.get("HTTP_USER_AGENT"),
        request.env.get("HTTP_ORIGIN"),
    )


def client_address(request: falcon.Request, *, trusted_proxies: int) -> str:
    """Return the address that a request came from."""
    return address_of(request.env, trusted_proxies=trusted_proxies)


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
