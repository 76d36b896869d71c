"""Paths as routes see them: a slash that a client has encoded belongs to a name, and parts no two of them.

Servers decode a path before they hand it on, and `/items/pages/a%2Fb` is then like `/items/pages/a/b`. Most of them
hand on the request's target as it came, too, which tells the two apart.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import unquote_to_bytes

import falcon
from falcon.inspect import inspect_compiled_router, register_router
from falcon.routing import CompiledRouter

ENCODED_SLASH = "\udc2f"
"""Stands for an encoded slash: half of a surrogate pair, which decoding a path never yields."""

_ENCODED = re.compile("%2[Ff]")

Route = tuple[object, Any, dict[str, Any], str | None]


class Router(CompiledRouter):
    """Falcon's router, for which an encoded slash is a character like any other."""

    def find(self, uri: str, req: falcon.Request | None = None) -> Route | None:
        path = uri if req is None else path_of(req.env, uri)
        route = super().find(path, req)
        if path == uri or route is None:
            return route
        resource, methods, params, template = route
        decoded = {name: value.replace(ENCODED_SLASH, "/") for name, value in params.items()}
        return resource, methods, decoded, template


register_router(Router)(inspect_compiled_router)  # else Falcon's tools do not list the routes


def path_of(environ: Mapping[str, Any], path: str) -> str:
    """Return the decoded path of a request with `ENCODED_SLASH` where the client has encoded a slash.

    The path stays as it is where the server tells no target, or one that does not end in this path: somebody between
    the server and the service has changed it.
    """
    target = str(environ.get("RAW_URI") or environ.get("REQUEST_URI") or "")
    if _ENCODED.search(target) is None:
        return path
    whole = ENCODED_SLASH.join(map(_decoded, _ENCODED.split(_path_of_target(target))))
    return whole[-len(path) :] if whole.replace(ENCODED_SLASH, "/").endswith(path) else path


def _path_of_target(target: str) -> str:
    """Return the path of a target, which may be the whole address as proxies are asked for it."""
    bare = re.split("[?#]", target, maxsplit=1)[0]
    return bare if bare.startswith("/") else "/" + bare.partition("://")[2].partition("/")[2]


def _decoded(text: str) -> str:
    return unquote_to_bytes(text.encode("latin-1", "replace")).decode("utf-8", "replace")
