"""/permissions/me: what the caller may do."""

from __future__ import annotations

import falcon

from cms.http.media import send
from cms.items.read.abilities import my_abilities, my_item_abilities
from cms.items.read.explain import explain_rights
from cms.store.store import Store


class MyPermissionsResource:
    """By collection and action, or of one item."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def on_get(self, request: falcon.Request, response: falcon.Response) -> None:
        send(response, my_abilities(self._store, request.context.identity))

    def on_get_item(
        self, request: falcon.Request, response: falcon.Response, collection: str, key: str
    ) -> None:
        send(
            response, my_item_abilities(self._store, request.context.identity, collection, key=key)
        )


class ExplainResource:
    """For administrators: what somebody may do with a collection, in words and in SQL."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def on_get(self, request: falcon.Request, response: falcon.Response) -> None:
        asked = {name: request.get_param(name) or "" for name in ("user", "collection", "action")}
        send(response, explain_rights(self._store, request.context.identity, **asked))
