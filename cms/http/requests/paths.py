"""Routing of paths in which a name may hold a slash or a comma, encoded by the client.

Servers decode a path before they pass it on, so `/items/pages/a%2Fb` looks like `/items/pages/a/b`.
Most of them also pass on the request target as the client sent it, in which the two differ.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import unquote_to_bytes

import falcon
from falcon.inspect import inspect_compiled_router, register_router
from falcon.routing import CompiledRouter

from cms.schema.key_texts import PathText

PING_PATH = "/server/ping"

ENCODED_SLASH = "\udc2f"
"""Stands for an encoded slash: half of a surrogate pair, which no decoded path contains."""

_ENCODED = re.compile("%2[Ff]")

Route = tuple[object, Any, dict[str, Any], str | None]


class Router(CompiledRouter):
    """Falcon's router, which treats an encoded slash like any other character."""

    def find(self, uri: str, req: falcon.Request | None = None) -> Route | None:
        # WSGI decodes the path before anybody sees it: the key `a%2Fb` arrives as `a/b`, which is
        # another route.
        path = uri if req is None else path_of(req.env, uri)
        route = super().find(path, req)
        target = "" if req is None else _target(req.env)
        if route is None or "%" not in target:
            return route
        # The path matched with a character that is no slash; the parameters have the slash again.
        resource, methods, params, template = route
        encoded = {_decoded(part): part for part in _path_of_target(target).split("/")}
        decoded: dict[str, Any] = {}
        for name, value in params.items():
            text = value.replace(ENCODED_SLASH, "/")
            decoded[name] = PathText.of(text, encoded[text]) if text in encoded else text
        return resource, methods, decoded, template


# Without it Falcon's tools do not list the routes.
register_router(Router)(inspect_compiled_router)


def path_of(environ: Mapping[str, Any], path: str) -> str:
    """Return the decoded path of a request, with `ENCODED_SLASH` for each slash that was encoded.

    The path is returned as it is where the server passes no target, or one that does not end in
    this path: then a proxy or a middleware has changed the path.
    """
    target = _target(environ)
    # Nearly every target has no percent sign, and that is seen much sooner.
    if "%" not in target or _ENCODED.search(target) is None:
        return path
    target_path = ENCODED_SLASH.join(map(_decoded, _ENCODED.split(_path_of_target(target))))
    # The path has lost the last slash (`without_last_slash`), the target has not.
    for whole_path in (target_path, target_path.removesuffix("/")):
        if whole_path.replace(ENCODED_SLASH, "/").endswith(path):
            # The target begins with the prefix under which the service is mounted.
            return whole_path[-len(path) :]
    return path


def without_last_slash(environ: Mapping[str, Any]) -> str:
    """Return the path of a request without a slash at its end; one that is encoded stays."""
    path = str(environ.get("PATH_INFO", ""))
    if len(path) == 1 or not path.endswith("/"):
        return path
    if sent_path(environ).lower().endswith("%2f"):
        return path
    return path.removesuffix("/")


def sent_path(environ: Mapping[str, Any]) -> str:
    """Return the path of a request as the client sent it, `/` where the server does not tell."""
    return _path_of_target(_target(environ))


def _target(environ: Mapping[str, Any]) -> str:
    return str(environ.get("RAW_URI") or environ.get("REQUEST_URI") or "")


def _path_of_target(target: str) -> str:
    """Return the path of a target, which is a whole address in requests to proxies."""
    address = re.split("[?#]", target, maxsplit=1)[0]
    if address.startswith("/"):
        return address
    return "/" + address.partition("://")[2].partition("/")[2]


def _decoded(text: str) -> str:
    # As Falcon decodes paths, with U+FFFD for bytes that are no UTF-8.
    return unquote_to_bytes(text.encode("latin-1", "replace")).decode("utf-8", "replace")
