"""The routes of the structure: collections, fields, relations, and the whole as a document."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from cms.openapi.json_schemas import (
    FLAG,
    OBJECT,
    TEXT,
    JsonSchema,
    any_of,
    array_of,
    nullable,
    object_of,
    reference,
)
from cms.openapi.operation import (
    JSON,
    NO_CONTENT,
    Answer,
    Body,
    Need,
    Operation,
    PathItem,
    data,
    read,
    send,
    write,
)
from cms.schema.system import COLLECTIONS
from cms.schema_sync.document_texts import FILE_FORMATS

_READ = Need(COLLECTIONS, "read")
_YAML = FILE_FORMATS["yaml"].media_type
_RECORD = nullable(OBJECT)
_SETTINGS: Mapping[str, JsonSchema] = MappingProxyType({"meta": _RECORD, "schema": _RECORD})

COLLECTION = "Collection"
FIELD = "Field"
RELATION = "Relation"

RECORD_SCHEMAS = MappingProxyType(
    {
        COLLECTION: object_of({"collection": TEXT, "meta": _RECORD, "schema": _RECORD}),
        FIELD: object_of(
            {"collection": TEXT, "field": TEXT, "type": TEXT, "meta": _RECORD, "schema": _RECORD}
        ),
        RELATION: object_of(
            {
                "collection": TEXT,
                "field": TEXT,
                "related_collection": nullable(TEXT),
                "meta": _RECORD,
                "schema": _RECORD,
            }
        ),
    }
)
"""The components of the records of the structure."""


def _list(summary: str, component: str) -> Operation:
    return read(summary, data(array_of(reference(component))), need=_READ)


def _one(summary: str, component: str) -> Operation:
    return read(summary, data(reference(component)), need=_READ)


def _create(summary: str, component: str, *required: str, **further: JsonSchema) -> Operation:
    body = object_of(dict.fromkeys(required, TEXT), {**_SETTINGS, **further})
    return write(summary, body, data(reference(component)), is_for_admins=True)


def _change(summary: str, component: str, **further: JsonSchema) -> Operation:
    body = object_of(optional={**_SETTINGS, **further})
    return write(summary, body, data(reference(component)), is_for_admins=True)


def _change_many(summary: str, component: str, key: str, **further: JsonSchema) -> Operation:
    body = array_of(object_of({key: TEXT}, {**_SETTINGS, **further}))
    return write(summary, body, data(array_of(reference(component))), is_for_admins=True)


def _delete(summary: str) -> Operation:
    return write(summary, is_for_admins=True)


_NEW_COLLECTION = object_of({"collection": TEXT}, {**_SETTINGS, "fields": array_of(OBJECT)})
_CREATE_COLLECTIONS = write(
    "Create a collection, or several",
    any_of(_NEW_COLLECTION, array_of(_NEW_COLLECTION)),
    data(any_of(reference(COLLECTION), array_of(reference(COLLECTION)))),
    is_for_admins=True,
)
_SNAPSHOT = read(
    "Read the structure as a document",
    Answer("The document.", {JSON: OBJECT, _YAML: OBJECT}),
    parameters=("include", "schema_export"),
    is_for_admins=True,
)


def _document(schema: JsonSchema) -> Body:
    """Return a body that may also be the file of a form."""
    form = object_of({"file": {"type": "string", "format": "binary"}})
    return Body({JSON: schema, _YAML: schema, "multipart/form-data": form})


_DIFF = send(
    "Compare the structure with a document",
    _document(OBJECT),
    data(OBJECT, "What leads from the structure to the document."),
    Answer("There is no difference.", status=204),
    is_for_admins=True,
)
_APPLY = write(
    "Change the structure by a difference",
    _document(
        any_of(
            object_of(
                {"hash": TEXT, "diff": OBJECT},
                {"ignored": array_of(OBJECT), "allow_destructive": FLAG},
            ),
            OBJECT,
        )
    ),
    NO_CONTENT,
    parameters=("allow_destructive",),
    is_for_admins=True,
)

STRUCTURE_ROUTES: Mapping[str, PathItem] = MappingProxyType(
    {
        "/collections": {
            "get": _list("List collections", COLLECTION),
            "post": _CREATE_COLLECTIONS,
            "patch": _change_many("Change several collections", COLLECTION, "collection"),
        },
        "/collections/{collection}": {
            "get": _one("Read a collection", COLLECTION),
            "patch": _change("Change a collection", COLLECTION),
            "delete": _delete("Delete a collection with its items"),
        },
        "/fields": {"get": _list("List the fields of all collections", FIELD)},
        "/fields/{collection}": {
            "get": _list("List the fields of a collection", FIELD),
            "post": _create("Create a field", FIELD, "field", "type"),
            "patch": _change_many("Change several fields", FIELD, "field", type=TEXT),
        },
        "/fields/{collection}/{field}": {
            "get": _one("Read a field", FIELD),
            "patch": _change("Change a field", FIELD, field=TEXT, type=TEXT),
            "delete": _delete("Delete a field with its values"),
        },
        "/relations": {
            "get": _list("List relations", RELATION),
            "post": _create(
                "Create a relation",
                RELATION,
                "collection",
                "field",
                related_collection=nullable(TEXT),
            ),
        },
        "/relations/{collection}": {"get": _list("List the relations of a collection", RELATION)},
        "/relations/{collection}/{field}": {
            "get": _one("Read a relation", RELATION),
            "patch": _change("Change a relation", RELATION),
            "delete": _delete("Delete a relation"),
        },
        "/schema/snapshot": {"get": _SNAPSHOT},
        "/schema/diff": {"post": _DIFF},
        "/schema/apply": {"post": _APPLY},
    }
)
