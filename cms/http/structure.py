"""/collections, /fields and /relations: the structure of the database."""

from __future__ import annotations

from collections.abc import Callable

import falcon

from cms.errors import invalid_payload, no_object
from cms.http.answers.envelope import send
from cms.http.requests.media import idempotency_key_of, read_json, read_json_object
from cms.store.store import Store
from cms.structure import collections, relations, visible_records
from cms.structure import fields as columns
from cms.structure.lookup import RecordPatch


class StructureResource:
    """Base of the resources of structure."""

    def __init__(self, store: Store) -> None:
        self._store = store


class CollectionsResource(StructureResource):
    def on_get(self, request: falcon.Request, response: falcon.Response) -> None:
        send(response, visible_records.list_collections(self._store, request.context.identity))

    def on_post(self, request: falcon.Request, response: falcon.Response) -> None:
        payload = read_json(request)
        create: Callable[..., object] = collections.create_collection
        if isinstance(payload, list):
            create = collections.create_collections
        payloads = payload if isinstance(payload, list) else [payload]
        # An empty array would do nothing, and so is a mistake.
        if not payloads or not all(isinstance(one, dict) for one in payloads):
            raise no_object()
        idempotency = idempotency_key_of(request)
        identity = request.context.identity
        send(response, create(self._store, identity, payload, idempotency=idempotency))

    def on_patch(self, request: falcon.Request, response: falcon.Response) -> None:
        changes = _patches(read_json(request), "collection")
        send(
            response, collections.update_collections(self._store, request.context.identity, changes)
        )


class CollectionResource(StructureResource):
    def on_get(self, request: falcon.Request, response: falcon.Response, collection: str) -> None:
        send(
            response,
            visible_records.read_collection(self._store, request.context.identity, collection),
        )

    def on_patch(self, request: falcon.Request, response: falcon.Response, collection: str) -> None:
        changes = [RecordPatch(collection, read_json_object(request))]
        send(
            response,
            collections.update_collections(self._store, request.context.identity, changes)[0],
        )

    def on_delete(
        self, request: falcon.Request, response: falcon.Response, collection: str
    ) -> None:
        collections.delete_collection(self._store, request.context.identity, collection)
        response.status = falcon.HTTP_204


class AllFieldsResource(StructureResource):
    def on_get(self, request: falcon.Request, response: falcon.Response) -> None:
        send(response, visible_records.list_fields(self._store, request.context.identity))


class FieldsResource(StructureResource):
    def on_get(self, request: falcon.Request, response: falcon.Response, collection: str) -> None:
        send(
            response, visible_records.list_fields(self._store, request.context.identity, collection)
        )

    def on_post(self, request: falcon.Request, response: falcon.Response, collection: str) -> None:
        payload = read_json_object(request)
        record = columns.create_field(
            self._store,
            request.context.identity,
            collection,
            payload,
            idempotency=idempotency_key_of(request),
        )
        send(response, record)

    def on_patch(self, request: falcon.Request, response: falcon.Response, collection: str) -> None:
        payload = read_json(request)
        changes = []
        for name, record in _patches(payload, "field"):
            # Here the name only says which field it is; in a change of one field it renames it.
            settings = {key: value for key, value in record.items() if key != "field"}
            changes.append(RecordPatch(name, settings))
        send(
            response,
            columns.update_fields(self._store, request.context.identity, collection, changes),
        )


class FieldResource(StructureResource):
    def on_get(
        self, request: falcon.Request, response: falcon.Response, collection: str, field: str
    ) -> None:
        send(
            response,
            visible_records.read_field(self._store, request.context.identity, collection, field),
        )

    def on_patch(
        self, request: falcon.Request, response: falcon.Response, collection: str, field: str
    ) -> None:
        changes = [RecordPatch(field, read_json_object(request))]
        send(
            response,
            columns.update_fields(self._store, request.context.identity, collection, changes)[0],
        )

    def on_delete(
        self, request: falcon.Request, response: falcon.Response, collection: str, field: str
    ) -> None:
        columns.delete_field(self._store, request.context.identity, collection, field)
        response.status = falcon.HTTP_204


class RelationsResource(StructureResource):
    def on_get(self, request: falcon.Request, response: falcon.Response) -> None:
        send(response, visible_records.list_relations(self._store, request.context.identity))

    def on_post(self, request: falcon.Request, response: falcon.Response) -> None:
        payload = read_json_object(request)
        send(
            response,
            relations.create_relation(
                self._store,
                request.context.identity,
                payload,
                idempotency=idempotency_key_of(request),
            ),
        )


class CollectionRelationsResource(StructureResource):
    def on_get(self, request: falcon.Request, response: falcon.Response, collection: str) -> None:
        send(
            response,
            visible_records.list_relations(self._store, request.context.identity, collection),
        )


class RelationResource(StructureResource):
    def on_get(
        self, request: falcon.Request, response: falcon.Response, collection: str, field: str
    ) -> None:
        send(
            response,
            visible_records.read_relation(self._store, request.context.identity, collection, field),
        )

    def on_patch(
        self, request: falcon.Request, response: falcon.Response, collection: str, field: str
    ) -> None:
        payload = read_json_object(request)
        record = relations.update_relation(
            self._store, request.context.identity, collection, field, payload=payload
        )
        send(response, record)

    def on_delete(
        self, request: falcon.Request, response: falcon.Response, collection: str, field: str
    ) -> None:
        relations.delete_relation(self._store, request.context.identity, collection, field)
        response.status = falcon.HTTP_204


def _patches(payload: object, key: str) -> list[RecordPatch]:
    """Return an array of records as changes; each record has its name under `key`."""
    if not isinstance(payload, list):
        raise invalid_payload("The body must be an array")
    for record in payload:
        if not isinstance(record, dict) or not isinstance(record.get(key), str):
            raise invalid_payload(f'Each entry must be an object with its "{key}"')
    # Of two changes of one record nobody could tell which one counts.
    if len({record[key] for record in payload}) < len(payload):
        raise invalid_payload(f'Each "{key}" must be there once')
    return [RecordPatch(record[key], record) for record in payload]
