"""/activity, /revisions, comments and the way back (specification, section 4.10)."""

from __future__ import annotations

import falcon

from cms.http.items import params_of, send_found, send_list
from cms.http.media import fields, once_of, send_written
from cms.http.tags import send_one
from cms.store import comments, history
from cms.store.reads import Ask, read_one
from cms.store.store import Store

Only = tuple[tuple[str, str, str], ...]

COMMENTS: Only = (("action", "_eq", "comment"),)


class Listing:
    """A system collection that is read as a list, in whole or only the rows with certain values."""

    def __init__(self, store: Store, most: int, collection: str, *, only: Only = ()) -> None:
        self._store = store
        self._most = most
        self._collection = collection
        self._only = only

    def on_get(self, request: falcon.Request, response: falcon.Response) -> None:
        ask = Ask(self._collection, request.query_string, only=self._only)
        send_list(self._store, request, response, ask)

    def on_query(self, request: falcon.Request, response: falcon.Response) -> None:
        ask = Ask(self._collection, params=params_of(request, self._most), only=self._only)
        send_found(self._store, request, response, ask)


class Entry:
    """One row of such a collection."""

    def __init__(self, store: Store, collection: str) -> None:
        self._store = store
        self._collection = collection

    def on_get(self, request: falcon.Request, response: falcon.Response, key: str) -> None:
        ask = Ask(self._collection, request.query_string)
        send_one(request, response, read_one(self._store, request.context.identity, ask, key=key))


class ItemRevisions:
    def __init__(self, store: Store) -> None:
        self._store = store

    def on_get(self, request: falcon.Request, response: falcon.Response, collection: str, key: str) -> None:
        ask = collection, request.query_string
        send_one(request, response, history.read_revisions(self._store, request.context.identity, ask, key=key))


class ItemRevision:
    def __init__(self, store: Store) -> None:
        self._store = store

    def on_get(
        self, request: falcon.Request, response: falcon.Response, collection: str, key: str, revision: str
    ) -> None:
        ask = collection, request.query_string
        found = history.read_revision(self._store, request.context.identity, ask, key=key, revision=revision)
        send_one(request, response, found)


class Revert:
    def __init__(self, store: Store) -> None:
        self._store = store

    def on_post(self, request: falcon.Request, response: falcon.Response, revision: str) -> None:
        """Give an item back what it held at a revision."""
        identity = request.context.identity
        once = once_of(request)
        found = history.revert(self._store, identity, request.query_string, revision=revision, once=once)
        send_written(response, found)


class NewComment:
    def __init__(self, store: Store, most: int) -> None:
        self._store = store
        self._most = most

    def on_post(self, request: falcon.Request, response: falcon.Response) -> None:
        payload, identity = fields(request, most=self._most), request.context.identity
        once = once_of(request)
        send_written(response, comments.comment(self._store, identity, request.query_string, payload, once=once))


class Comment:
    """A comment as its author sees it."""

    def __init__(self, store: Store, most: int) -> None:
        self._store = store
        self._most = most

    def on_patch(self, request: falcon.Request, response: falcon.Response, key: str) -> None:
        payload = fields(request, most=self._most)
        written = comments.change_comment(
            self._store,
            request.context.identity,
            request.query_string,
            key=key,
            payload=payload,
            if_match=request.get_header("If-Match"),
        )
        send_written(response, written)

    def on_delete(self, request: falcon.Request, response: falcon.Response, key: str) -> None:
        if_match = request.get_header("If-Match")
        comments.delete_comment(self._store, request.context.identity, key=key, if_match=if_match)
        response.status = falcon.HTTP_204


class Comments(Listing, NewComment):
    """The same comments for clients of the newer form."""

    def __init__(self, store: Store, most: int) -> None:
        super().__init__(store, most, "system_activity", only=COMMENTS)


class OneComment(Comment):
    """One of them, which here can also be read."""

    def on_get(self, request: falcon.Request, response: falcon.Response, key: str) -> None:
        ask = Ask("system_activity", request.query_string, only=COMMENTS)
        send_one(request, response, read_one(self._store, request.context.identity, ask, key=key))
