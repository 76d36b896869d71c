"""/server and /utils: is it up, is it well, what is it, and forget what was remembered."""

from __future__ import annotations

from urllib.parse import parse_qs

import falcon

from cms.errors import Refused
from cms.http.errors import RETRY_AFTER_SECONDS
from cms.http.media import idempotency_key_of, send
from cms.items.read.explain import explain
from cms.store.health import health, info, public_health
from cms.store.identity import ANONYMOUS
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
        """Answer 200 when a request could be served, else 503 with the reason; administrators see the parts.

        Without a database nobody can be told from an administrator, and to try would double the time it takes.
        """
        found = health(self._store)
        well = found["status"] == "ok"
        response.status = falcon.HTTP_200 if well else falcon.HTTP_503
        if not well:
            response.set_header("Retry-After", RETRY_AFTER_SECONDS)
        send(response, found if well and self._is_admin(request) else public_health(found))

    def _is_admin(self, request: falcon.Request) -> bool:
        try:
            identity = request.context.identity
            if identity == ANONYMOUS:
                return False
            self._store.run_unversioned_read(identity, lambda context: require_admin(context.actor))
        except Refused:
            return False
        return True


class InfoResource:
    def __init__(self, store: Store) -> None:
        self._store = store

    def on_get(self, request: falcon.Request, response: falcon.Response) -> None:
        """Answer the project's public face; administrators also see versions."""
        send(response, info(self._store, request.context.identity))


class ExplainResource:
    def __init__(self, store: Store) -> None:
        self._store = store

    def on_get(self, request: falcon.Request, response: falcon.Response) -> None:
        """Tell an administrator what a read becomes, without doing it.

        The path is encoded as a whole, or not at all: then what follows `path=` is all of it.
        """
        before, _, said = request.query_string.partition("path=")
        plain = "?" in said
        asked = parse_qs(before if plain else request.query_string)
        path = said if plain else asked.get("path", [""])[0]
        user = asked.get("user", [None])[0]
        send(response, explain(self._store, request.context.identity, path, user=user))


class ClearCacheResource:
    def __init__(self, store: Store) -> None:
        self._store = store

    def on_post(self, request: falcon.Request, response: falcon.Response) -> None:
        """Forget the structure, in every process, after changes made behind the service's back."""
        self._store.reload_structure(
            request.context.identity, idempotency=idempotency_key_of(request)
        )
        response.status = falcon.HTTP_204
