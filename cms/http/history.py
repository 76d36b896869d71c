"""/activity, /revisions, comments, and reverting to a revision."""

from __future__ import annotations

import falcon

from cms.errors import invalid_payload
from cms.http.answers.envelope import send_with_etag, send_without_etag, send_written
from cms.http.items import params_of, send_list, send_search, write_target
from cms.http.requests.media import (
    idempotency_key_of,
    read_json,
    read_json_object,
    read_selection,
    require_no_body,
)
from cms.http.requests.request import Request
from cms.items.history import comments, revisions
from cms.items.read.prepare import ReadRequest, RowTest
from cms.items.read.reads import read_one
from cms.schema.system import ACTIVITY, REVISIONS
from cms.store.store import Store


# /activity, /revisions and the logs of flows take no writes, which is why they are no
# `ItemsResource`.
class SystemItemsResource:
    """A system collection that is read as a list; `only` restricts it to some of its rows."""

    def __init__(self, store: Store, collection: str, *, only: tuple[RowTest, ...] = ()) -> None:
        self._store = store
        self._collection = collection
        self._only = only

    def on_get(self, request: Request, response: falcon.Response) -> None:
        read_request = ReadRequest(self._collection, request.query_string, only=self._only)
        send_list(self._store, request, response, read_request)

    def on_query(self, request: Request, response: falcon.Response) -> None:
        read_request = ReadRequest(self._collection, params=params_of(request), only=self._only)
        send_search(self._store, request, response, read_request)


class SystemItemResource:
    """One row of such a collection."""

    def __init__(self, store: Store, collection: str) -> None:
        self._store = store
        self._collection = collection

    def on_get(self, request: Request, response: falcon.Response, key: str) -> None:
        read_request = ReadRequest(self._collection, request.query_string)
        send_with_etag(
            self._store,
            request,
            response,
            read_one(self._store, request.identity, read_request, key=key),
        )

    def on_query(self, request: Request, response: falcon.Response, key: str) -> None:
        read_request = ReadRequest(self._collection, params=params_of(request))
        identity = request.identity
        send_without_etag(
            self._store, response, read_one(self._store, identity, read_request, key=key)
        )


class ItemRevisionsResource:
    def __init__(self, store: Store) -> None:
        self._store = store

    def on_get(
        self, request: Request, response: falcon.Response, collection: str, key: str
    ) -> None:
        read_request = ReadRequest(collection, request.query_string)
        send_with_etag(
            self._store,
            request,
            response,
            revisions.read_revisions(self._store, request.identity, read_request, key=key),
        )


class ItemRevisionResource:
    def __init__(self, store: Store) -> None:
        self._store = store

    def on_get(
        self,
        request: Request,
        response: falcon.Response,
        collection: str,
        key: str,
        revision: str,
    ) -> None:
        read_request = ReadRequest(collection, request.query_string)
        answer = revisions.read_revision(
            self._store, request.identity, read_request, key=key, revision=revision
        )
        send_with_etag(self._store, request, response, answer)


class RevertResource:
    def __init__(self, store: Store) -> None:
        self._store = store

    def on_post(self, request: Request, response: falcon.Response, revision: str) -> None:
        """Give an item the values that it had at a revision."""
        require_no_body(request)
        target = write_target(request, REVISIONS)
        written = revisions.revert(self._store, request.identity, target, revision=revision)
        send_written(response, written)


class CommentWritesResource:
    """New comments, and several that their author changes or deletes."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def on_post(self, request: Request, response: falcon.Response) -> None:
        payload = read_json(request)
        if not isinstance(payload, dict | list):
            raise invalid_payload("The body must be a comment or an array of comments")
        written = comments.comment(
            self._store,
            request.identity,
            request.query_string,
            payload,
            idempotency=idempotency_key_of(request),
        )
        send_written(response, written)

    def on_patch(self, request: Request, response: falcon.Response) -> None:
        payload = read_selection(request)
        target = write_target(request, ACTIVITY)
        written = comments.change_comments(self._store, request.identity, target, payload)
        send_written(response, written)

    def on_delete(self, request: Request, response: falcon.Response) -> None:
        payload = read_selection(request)
        target = write_target(request, ACTIVITY)
        comments.delete_comments(self._store, request.identity, target, payload)
        response.status = falcon.HTTP_204


class CommentResource:
    """A comment that its author changes or deletes."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def on_patch(self, request: Request, response: falcon.Response, key: str) -> None:
        payload = read_json_object(request)
        target = write_target(request, ACTIVITY)
        written = comments.change_comment(
            self._store, request.identity, target, key=key, payload=payload
        )
        send_written(response, written)

    def on_delete(self, request: Request, response: falcon.Response, key: str) -> None:
        require_no_body(request)
        target = write_target(request, ACTIVITY)
        comments.delete_comment(self._store, request.identity, target, key=key)
        response.status = falcon.HTTP_204


# The newer paths, under which comments are read as well: /activity/comment takes writes only.


class CommentsResource(SystemItemsResource, CommentWritesResource):
    """Comments as a list, and writes of several."""

    def __init__(self, store: Store) -> None:
        super().__init__(store, ACTIVITY, only=comments.ONLY_COMMENTS)


class ReadableCommentResource(CommentResource):
    """One comment, which can be read as well."""

    def on_get(self, request: Request, response: falcon.Response, key: str) -> None:
        read_request = ReadRequest(ACTIVITY, request.query_string, only=comments.ONLY_COMMENTS)
        send_with_etag(
            self._store,
            request,
            response,
            read_one(self._store, request.identity, read_request, key=key),
        )

    def on_query(self, request: Request, response: falcon.Response, key: str) -> None:
        only = comments.ONLY_COMMENTS
        read_request = ReadRequest(ACTIVITY, params=params_of(request), only=only)
        identity = request.identity
        send_without_etag(
            self._store, response, read_one(self._store, identity, read_request, key=key)
        )
