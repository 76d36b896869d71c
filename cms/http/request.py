"""A request with what the service knows of it: its id, its beginning, and who calls."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

import falcon

from cms.store.store import ANONYMOUS, Caller, Identity

# SEARCH is the same as the younger QUERY, which is the one that Falcon knows.
_ALIASES: Mapping[str, str] = MappingProxyType({"SEARCH": "QUERY"})
# What Falcon has never heard of it answers 400; this it knows, and no resource serves it: so it is 405.
_UNSERVED = "TRACE"
_KNOWN = frozenset(falcon.COMBINED_METHODS) - {"WEBSOCKET"}


class Context:
    """What belongs to one request; `method` is the one that the client named, `digest` that of a body that was read."""

    __slots__ = ("_identify", "began", "digest", "id", "method")

    def __init__(self) -> None:
        self.id = secrets.token_hex(8)
        self.began = time.perf_counter()
        self.method = ""
        self.digest = b""
        self._identify: Callable[[], Identity] | None = None

    def identified_by(self, identify: Callable[[], Identity]) -> None:
        """Keep how the caller is told, for when a resource asks."""
        self._identify = identify

    @property
    def identity(self) -> Identity:
        """Who calls; raises `Refused` INVALID_TOKEN.

        It is not told before a resource asks: a client that sends an old token with every request could not
        log in again if /auth/login minded it.
        """
        return self._identify() if self._identify else ANONYMOUS


class Request(falcon.Request):
    """A request whose method is one that Falcon can route."""

    __slots__ = ()
    context_type = Context

    def __init__(self, env: dict[str, Any], options: falcon.RequestOptions | None = None) -> None:
        super().__init__(env, options=options)
        self.context.method = method = self.method
        if method not in _KNOWN:
            self.method = _ALIASES.get(method, _UNSERVED)


def caller_of(request: falcon.Request) -> Caller:
    """Return where a request came from."""
    return Caller(request.remote_addr, request.user_agent, request.get_header("Origin"))
