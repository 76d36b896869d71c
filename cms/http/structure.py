"""/collections, /fields and /relations: the structure of the database."""

from __future__ import annotations

import falcon

from cms.errors import invalid_payload, no_object
from cms.http.answers.envelope import send
from cms.http.requests.media import (
    idempotency_key_of,
    read_json,
    read_json_object,
    require_no_body,
)
from cms.http.requests.request import Request
from cms.store.store import Store
from cms.structure import collections, relations, visible_records
from cms.structure import fields as columns
from cms.structure.lookup import ManySide, RecordPatch


class StructureResource:
    """Base of the resources of structure."""

    def __init__(self, store: Store) -> None:
        self._store = store


class CollectionsResource(StructureResource):
    def on_get(self, request: Request, response: falcon.Response) -> None:
        send(response, visible_records.list_collections(self._store, request.identity))

    def on_post(self, request: Request, response: falcon.Response) -> None:
        payload = read_json(request)
        identity = request.identity
        idempotency = idempotency_key_of(request)
        if isinstance(payload, dict):
            record = collections.create_collection(
                self._store, identity, payload, idempotency=idempotency
            )
            send(response, record)
            return
        # An empty array would do nothing, and so is a mistake.
        if not isinstance(payload, list) or not payload:
            raise no_object()
        if not all(isinstance(one, dict) for one in payload):
            raise no_object()
        records = collections.create_collections(
            self._store, identity, payload, idempotency=idempotency
        )
        send(response, records)

    def on_patch(self, request: Request, response: falcon.Response) -> None:
        changes = _patches(read_json(request), "collection")
        records = collections.update_collections(
            self._store,
            request.identity,
            changes,
            idempotency=idempotency_key_of(request),
        )
        send(response, records)


class CollectionResource(StructureResource):
    def on_get(self, request: Request, response: falcon.Response, collection: str) -> None:
        send(
            response,
            visible_records.read_collection(self._store, request.identity, collection),
        )

    def on_patch(self, request: Request, response: falcon.Response, collection: str) -> None:
        change = RecordPatch(collection, read_json_object(request))
        record = collections.update_collection(
            self._store, request.identity, change, idempotency=idempotency_key_of(request)
        )
        send(response, record)

    def on_delete(self, request: Request, response: falcon.Response, collection: str) -> None:
        require_no_body(request)
        collections.delete_collection(
            self._store,
            request.identity,
            collection,
            idempotency=idempotency_key_of(request),
        )
        response.status = falcon.HTTP_204


class AllFieldsResource(StructureResource):
    def on_get(self, request: Request, response: falcon.Response) -> None:
        send(response, visible_records.list_fields(self._store, request.identity))


class FieldsResource(StructureResource):
    def on_get(self, request: Request, response: falcon.Response, collection: str) -> None:
        send(response, visible_records.list_fields(self._store, request.identity, collection))

    def on_post(self, request: Request, response: falcon.Response, collection: str) -> None:
        payload = read_json_object(request)
        record = columns.create_field(
            self._store,
            request.identity,
            collection,
            payload,
            idempotency=idempotency_key_of(request),
        )
        send(response, record)

    def on_patch(self, request: Request, response: falcon.Response, collection: str) -> None:
        payload = read_json(request)
        changes = []
        for name, record in _patches(payload, "field"):
            # Here the name only says which field it is; in a change of one field it renames it.
            settings = {key: value for key, value in record.items() if key != "field"}
            changes.append(RecordPatch(name, settings))
        records = columns.update_fields(
            self._store,
            request.identity,
            collection,
            changes,
            idempotency=idempotency_key_of(request),
        )
        send(response, records)


class FieldResource(StructureResource):
    def on_get(
        self, request: Request, response: falcon.Response, collection: str, field: str
    ) -> None:
        send(
            response,
            visible_records.read_field(self._store, request.identity, collection, field),
        )

    def on_patch(
        self, request: Request, response: falcon.Response, collection: str, field: str
    ) -> None:
        change = RecordPatch(field, read_json_object(request))
        record = columns.update_field(
            self._store,
            request.identity,
            collection,
            change,
            idempotency=idempotency_key_of(request),
        )
        send(response, record)

    def on_delete(
        self, request: Request, response: falcon.Response, collection: str, field: str
    ) -> None:
        require_no_body(request)
        columns.delete_field(
            self._store,
            request.identity,
            collection,
            field,
            idempotency=idempotency_key_of(request),
        )
        response.status = falcon.HTTP_204


class RelationsResource(StructureResource):
    def on_get(self, request: Request, response: falcon.Response) -> None:
        send(response, visible_records.list_relations(self._store, request.identity))

    def on_post(self, request: Request, response: falcon.Response) -> None:
        payload = read_json_object(request)
        send(
            response,
            relations.create_relation(
                self._store,
                request.identity,
                payload,
                idempotency=idempotency_key_of(request),
            ),
        )


class CollectionRelationsResource(StructureResource):
    def on_get(self, request: Request, response: falcon.Response, collection: str) -> None:
        send(
            response,
            visible_records.list_relations(self._store, request.identity, collection),
        )


class RelationResource(StructureResource):
    def on_get(
        self, request: Request, response: falcon.Response, collection: str, field: str
    ) -> None:
        send(
            response,
            visible_records.read_relation(self._store, request.identity, collection, field),
        )

    def on_patch(
        self, request: Request, response: falcon.Response, collection: str, field: str
    ) -> None:
        payload = read_json_object(request)
        record = relations.update_relation(
            self._store,
            request.identity,
            ManySide(collection, field),
            payload=payload,
            idempotency=idempotency_key_of(request),
        )
        send(response, record)

    def on_delete(
        self, request: Request, response: falcon.Response, collection: str, field: str
    ) -> None:
        require_no_body(request)
        relations.delete_relation(
            self._store,
            request.identity,
            ManySide(collection, field),
            idempotency=idempotency_key_of(request),
        )
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
