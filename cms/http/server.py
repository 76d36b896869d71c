"""/server and /utils: liveness, information, explanations, and the cache."""

from __future__ import annotations

from urllib.parse import parse_qs

import falcon

from cms.http.answers.envelope import send
from cms.http.ping import BODY
from cms.http.requests.media import idempotency_key_of, require_no_body
from cms.http.requests.request import Request
from cms.items.read.explain import explain
from cms.store.project_info import info
from cms.store.store import Store


class PingResource:
    def on_get(self, request: Request, response: falcon.Response) -> None:
        """Answer without touching the database."""
        response.content_type = falcon.MEDIA_TEXT
        response.data = BODY


class InfoResource:
    def __init__(self, store: Store) -> None:
        self._store = store

    def on_get(self, request: Request, response: falcon.Response) -> None:
        """Answer the project's public information; administrators see versions as well."""
        send(response, info(self._store, request.identity))


class ExplainResource:
    def __init__(self, store: Store) -> None:
        self._store = store

    def on_get(self, request: Request, response: falcon.Response) -> None:
        """Explain to an administrator the statement of a read, without running it."""
        # The path is encoded as a whole, or not at all: then all behind `path=` belongs to it.
        query_before, _, rest = request.query_string.partition("path=")
        # `path=/items/a?fields=id&limit=2`: parse_qs would take `limit` for a parameter of this
        # route.
        if "?" in rest:
            params = parse_qs(query_before)
            path = rest
        else:
            params = parse_qs(request.query_string)
            path = params.get("path", [""])[0]
        user = params.get("user", [None])[0]
        send(response, explain(self._store, request.identity, path, user=user))


class ClearCacheResource:
    def __init__(self, store: Store) -> None:
        self._store = store

    def on_post(self, request: Request, response: falcon.Response) -> None:
        """Reload the structure in every process, after changes that bypassed the service."""
        require_no_body(request)
        self._store.reload_structure(request.identity, idempotency=idempotency_key_of(request))
        response.status = falcon.HTTP_204
