"""/items: the rows of collections."""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import quote

import falcon

from cms.errors import invalid_payload, refuse_unknown_members
from cms.http.answers.envelope import send_with_etag, send_without_etag, send_written
from cms.http.requests.media import (
    idempotency_key_of,
    read_json,
    read_json_object,
    read_selection,
    require_no_body,
)
from cms.http.requests.request import Request
from cms.items.read.prepare import ReadRequest
from cms.items.read.reads import read_list, read_one
from cms.items.transfer.export import Export, export
from cms.items.write import writes
from cms.items.write.batches import run_batch
from cms.items.write.manual_sorting import move_item
from cms.query.language.query_strings import nested_params
from cms.schema.system import SETTINGS
from cms.store.store import Store


# Falcon passes the parameters of a path by name. Routes without a collection in their path, such as
# /users, leave it out, and the resource knows it.
class _StoreResource:
    """Base of the resources of items; `collection` is for paths that do not name one."""

    def __init__(self, store: Store, collection: str = "") -> None:
        self._store = store
        self._collection = collection


class ItemsResource(_StoreResource):
    """Several items, or the only item of a singleton."""

    def on_get(self, request: Request, response: falcon.Response, collection: str = "") -> None:
        send_list(
            self._store,
            request,
            response,
            ReadRequest(collection or self._collection, request.query_string),
        )

    def on_query(self, request: Request, response: falcon.Response, collection: str = "") -> None:
        """Read by SEARCH (or QUERY), with the parameters under `query` in the body."""
        read_request = ReadRequest(collection or self._collection, params=params_of(request))
        send_search(self._store, request, response, read_request)

    def on_post(self, request: Request, response: falcon.Response, collection: str = "") -> None:
        payload = read_json(request)
        if not isinstance(payload, dict | list):
            raise invalid_payload("The body must be an item or an array of items")
        target = write_target(request, collection or self._collection)
        send_written(response, writes.create(self._store, request.identity, target, payload))

    def on_patch(self, request: Request, response: falcon.Response, collection: str = "") -> None:
        payload = read_selection(request)
        target = write_target(request, collection or self._collection)
        written = writes.update_many(self._store, request.identity, target, payload)
        send_written(response, written)

    def on_delete(self, request: Request, response: falcon.Response, collection: str = "") -> None:
        payload = read_selection(request)
        target = write_target(request, collection or self._collection)
        writes.delete_many(self._store, request.identity, target, payload)
        response.status = falcon.HTTP_204


class SettingsResource(_StoreResource):
    """The one record of the settings; everybody may read its public part."""

    def __init__(self, store: Store) -> None:
        super().__init__(store, SETTINGS)

    # Neither POST nor DELETE: the record always exists.
    on_get = ItemsResource.on_get
    on_query = ItemsResource.on_query
    on_patch = ItemsResource.on_patch


def write_target(request: Request, collection: str) -> writes.WriteTarget:
    """Return what a request writes, with its conditions; call it after the body was read."""
    return writes.WriteTarget(
        collection,
        request.query_string,
        request.env.get("HTTP_IF_MATCH"),
        idempotency_key_of(request),
    )


def send_list(
    store: Store, request: Request, response: falcon.Response, read_request: ReadRequest
) -> None:
    """Send a list, or an export where the query string asks for one."""
    file_format = None
    # This test spares almost every read a parse of its query string.
    if "export" in request.query_string:
        file_format = file_format_of(nested_params(request.query_string))
    if file_format:
        send_file(response, export(store, request.identity, read_request, file_format=file_format))
    else:
        send_with_etag(store, request, response, read_list(store, request.identity, read_request))


def send_search(
    store: Store, request: Request, response: falcon.Response, read_request: ReadRequest
) -> None:
    """Send the list or export that the parameters in a body ask for."""
    file_format = file_format_of(read_request.params or {})
    if file_format:
        send_file(response, export(store, request.identity, read_request, file_format=file_format))
    else:
        send_without_etag(store, response, read_list(store, request.identity, read_request))


def params_of(request: Request) -> dict[str, object]:
    """Return the parameters of a SEARCH body; raises `Refused` INVALID_PAYLOAD.

    No body is one without parameters.
    """
    payload = read_json(request)
    if payload is None:
        return {}
    params = payload.get("query", {}) if isinstance(payload, dict) else None
    if not isinstance(payload, dict) or not isinstance(params, dict):
        raise invalid_payload('The body must be an object with the parameters under "query"')
    refuse_unknown_members(payload, ("query",))
    return params


def file_format_of(params: Mapping[str, object]) -> str | None:
    """Return the format of the export that parameters ask for, None for no export."""
    file_format = params.get("export")
    # "export=" asks for nothing; any other value is a format, if only an unknown one.
    if file_format in (None, ""):
        return None
    return str(file_format)


def send_file(response: falcon.Response, export_file: Export) -> None:
    """Send an attachment as a stream."""
    response.content_type = export_file.media_type
    response.set_header(
        "Content-Disposition", f"attachment; filename*=UTF-8''{quote(export_file.filename)}"
    )
    # Browsers must not take the contents of items for a page of this site.
    response.set_header("X-Content-Type-Options", "nosniff")
    response.stream = export_file.chunks


class ItemResource(_StoreResource):
    """One item by its primary key."""

    def on_get(
        self,
        request: Request,
        response: falcon.Response,
        collection: str = "",
        *,
        key: str,
    ) -> None:
        read_request = ReadRequest(collection or self._collection, request.query_string)
        send_with_etag(
            self._store,
            request,
            response,
            read_one(self._store, request.identity, read_request, key=key),
        )

    def on_query(
        self,
        request: Request,
        response: falcon.Response,
        collection: str = "",
        *,
        key: str,
    ) -> None:
        """Read by SEARCH (or QUERY), with the parameters under `query` in the body."""
        read_request = ReadRequest(collection or self._collection, params=params_of(request))
        identity = request.identity
        send_without_etag(
            self._store, response, read_one(self._store, identity, read_request, key=key)
        )

    def on_patch(
        self,
        request: Request,
        response: falcon.Response,
        collection: str = "",
        *,
        key: str,
    ) -> None:
        payload = read_json(request)
        target = write_target(request, collection or self._collection)
        written = writes.update_one(self._store, request.identity, target, key=key, payload=payload)
        send_written(response, written)

    def on_delete(
        self,
        request: Request,
        response: falcon.Response,
        collection: str = "",
        *,
        key: str,
    ) -> None:
        require_no_body(request)
        target = write_target(request, collection or self._collection)
        writes.delete_one(self._store, request.identity, target, key=key)
        response.status = falcon.HTTP_204


class SortResource:
    """Manual sorting."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def on_post(self, request: Request, response: falcon.Response, collection: str) -> None:
        """Move `item` to the position of `to`."""
        payload = read_json_object(request)
        target = write_target(request, collection)
        move_item(self._store, request.identity, target, payload)
        response.status = falcon.HTTP_204


class BatchResource:
    """Several operations in one transaction."""

    def __init__(self, store: Store, max_bytes: int) -> None:
        self._store = store
        self._max_bytes = max_bytes

    def on_post(self, request: Request, response: falcon.Response) -> None:
        payload = read_json(request)
        idempotency = idempotency_key_of(request)
        response.data = run_batch(
            self._store,
            request.identity,
            payload,
            max_bytes=self._max_bytes,
            idempotency=idempotency,
        )
