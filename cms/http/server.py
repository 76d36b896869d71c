"""/server and /utils: liveness, health, information, explanations, and the cache."""

from __future__ import annotations

from urllib.parse import parse_qs

import falcon

from cms.errors import Refused
from cms.http.errors import RETRY_AFTER_SECONDS
from cms.http.media import idempotency_key_of, send
from cms.items.read.explain import explain
from cms.store.health import health, info, public_health
from cms.store.store import Store, require_admin


class PingResource:
    def on_get(self, request: falcon.Request, response: falcon.Response) -> None:
        """Answer without touching the database."""
        response.content_type = falcon.MEDIA_TEXT
        response.text = "pong"


class HealthResource:
    def __init__(self, store: Store) -> None:
        self._store = store

    def on_get(self, request: falcon.Request, response: falcon.Response) -> None:
        """Answer 200 when requests can be served, else 503 with the reason.

        Administrators see each part of a healthy service.
        """
        report = health(self._store)
        if report["status"] != "ok":
            # Without a database nobody is recognised as an administrator, and to try would take as
            # long again.
            response.status = falcon.HTTP_503
            response.set_header("Retry-After", RETRY_AFTER_SECONDS)
            report = public_health(report)
        elif not self._is_admin(request):
            report = public_health(report)
        send(response, report)

    def _is_admin(self, request: falcon.Request) -> bool:
        try:
            identity = request.context.identity
            # Most calls come from load balancers, which need no lookup of who calls.
            if identity.is_anonymous:
                return False
            self._store.run_unversioned_read(identity, lambda context: require_admin(context.actor))
        except Refused:
            return False
        return True


class InfoResource:
    def __init__(self, store: Store) -> None:
        self._store = store

    def on_get(self, request: falcon.Request, response: falcon.Response) -> None:
        """Answer the project's public information; administrators see versions as well."""
        send(response, info(self._store, request.context.identity))


class ExplainResource:
    def __init__(self, store: Store) -> None:
        self._store = store

    def on_get(self, request: falcon.Request, response: falcon.Response) -> None:
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
        send(response, explain(self._store, request.context.identity, path, user=user))


class ClearCacheResource:
    def __init__(self, store: Store) -> None:
        self._store = store

    def on_post(self, request: falcon.Request, response: falcon.Response) -> None:
        """Reload the structure in every process, after changes that bypassed the service."""
        self._store.reload_structure(
            request.context.identity, idempotency=idempotency_key_of(request)
        )
        response.status = falcon.HTTP_204
