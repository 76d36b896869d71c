"""/permissions: what the caller may do, and why."""

from __future__ import annotations

import falcon

from cms.http.answers.envelope import send
from cms.http.requests.request import Request
from cms.items.read.explain import explain_rights
from cms.items.read.my_abilities import my_abilities, my_item_abilities
from cms.store.store import Store


class MyPermissionsResource:
    """The caller's rights, by collection and action, or on one item."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def on_get(self, request: Request, response: falcon.Response) -> None:
        send(response, my_abilities(self._store, request.identity))

    def on_get_item(
        self,
        request: Request,
        response: falcon.Response,
        collection: str,
        key: str | None = None,
    ) -> None:
        send(response, my_item_abilities(self._store, request.identity, collection, key=key))


class ExplainRightsResource:
    """For administrators: what a user may do with a collection, in words and in SQL."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def on_get(self, request: Request, response: falcon.Response) -> None:
        # A missing one is refused like an unknown one.
        names = ("user", "collection", "action")
        params = {name: request.get_param(name) or "" for name in names}
        send(response, explain_rights(self._store, request.identity, **params))
