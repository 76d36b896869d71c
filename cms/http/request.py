"""A request with what the service knows of it: its id, its beginning, and who calls."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

import falcon

from cms.access.addresses import address
from cms.store.identity import ANONYMOUS, ClientInfo, Identity

# SEARCH is the same as the younger QUERY, which is the one that Falcon knows.
_ALIASES: Mapping[str, str] = MappingProxyType({"SEARCH": "QUERY"})
# What Falcon has never heard of it answers 400; this it knows, and no resource serves it: so it is 405.
_UNSUPPORTED = "TRACE"
_KNOWN = frozenset(falcon.COMBINED_METHODS) - {"WEBSOCKET"}


class RequestState:
    """What belongs to one request; `method` is the one that the client named, `digest` that of a body that was read.

    `seal` is the key under which digests of what clients send are kept: a body may hold a password.
    """

    __slots__ = ("_arrive", "_identify", "began", "digest", "id", "method", "seal")

    def __init__(self) -> None:
        self.id = f"{random.getrandbits(64):016x}"  # no secret; Python seeds anew after a fork
        self.began = time.perf_counter()
        self.method = ""
        self.digest = self.seal = b""
        self._identify: Callable[[], Identity] | None = None
        self._arrive: Callable[[], ClientInfo] | None = None

    def identify_with(
        self, find_identity: Callable[[], Identity], find_caller: Callable[[], ClientInfo]
    ) -> None:
        """Keep how the caller is told, and from where it calls, for when a resource asks."""
        self._identify, self._arrive = find_identity, find_caller

    @property
    def client(self) -> ClientInfo:
        """From where the request came."""
        return self._arrive() if self._arrive else ClientInfo()

    @property
    def identity(self) -> Identity:
        """Who calls; raises `Refused` INVALID_TOKEN.

        It is not told before a resource asks: a client that sends an old token with every request could not
        log in again if /auth/login minded it.
        """
        return self._identify().with_client(self.client) if self._identify else ANONYMOUS


class Request(falcon.Request):
    """A request whose method is one that Falcon can route."""

    __slots__ = ()
    context_type = RequestState

    def __init__(self, env: dict[str, Any], options: falcon.RequestOptions | None = None) -> None:
        super().__init__(env, options=options)
        self.context.method = method = self.method
        if method not in _KNOWN:
            self.method = _ALIASES.get(method, _UNSUPPORTED)


def caller_of(request: falcon.Request, *, hops: int = 0) -> ClientInfo:
    """Return where a request came from; `hops` is how many proxies before the service are to be believed."""
    return ClientInfo(_ip(request, hops), request.user_agent, request.get_header("Origin"))


def _ip(request: falcon.Request, hops: int) -> str:
    """Return the address that the outermost of our proxies saw, else the one that the connection comes from.

    What stands further left in X-Forwarded-For anybody can have written.
    """
    if hops and (said := request.get_header("X-Forwarded-For")):
        seen = said.split(",")[-hops:]
        if (found := _address(seen[0])) is not None:
            return found
    return address(request.remote_addr) or request.remote_addr


def _address(said: str) -> str | None:
    """Read an address with or without a port: 192.0.2.1, 192.0.2.1:80, 2001:db8::1, [2001:db8::1]:80."""
    bare = said.strip()
    if bare.startswith("["):
        return address(bare[1:].partition("]")[0])
    return address(bare if bare.count(":") != 1 else bare.partition(":")[0])
