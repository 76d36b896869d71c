"""The routes of the service itself, and those that serve several collections at once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType

from cms.items.transfer.formats import FORMATS
from cms.openapi.json_schemas import (
    ANYTHING,
    BINARY,
    FLAG,
    INTEGER,
    ITEM_KEY,
    OBJECT,
    TEXT,
    array_of,
    nullable,
    object_of,
    one_of_texts,
    texts,
)
from cms.openapi.operation import (
    ETAG,
    JSON,
    NO_CONTENT,
    NOT_MODIFIED,
    RETRY_AFTER,
    Answer,
    Body,
    PathItem,
    data,
    read,
    send,
    write,
)
from cms.query.language.operations import ARGUMENTS, METHODS

_STATE = data(object_of({"status": one_of_texts(("ok", "warn"))}), "The state of the service.")
_FAULT = replace(
    data(object_of({"status": one_of_texts(("error",))}, {"reason": TEXT}), "It cannot serve."),
    status=503,
    headers=(RETRY_AFTER,),
)
_OPERATION = object_of(
    {"method": one_of_texts(METHODS), "collection": TEXT},
    {**dict.fromkeys(ARGUMENTS, ANYTHING), "id": TEXT},
)
_BATCH = object_of({"operations": array_of(_OPERATION)})

SERVICE_ROUTES: Mapping[str, PathItem] = MappingProxyType(
    {
        "/server/ping": {"get": read("Tell that it runs", Answer("pong", {"text/plain": TEXT}))},
        "/server/health": {"get": read("Tell whether it can serve", _STATE, _FAULT)},
        "/server/info": {
            "get": read("Describe the project", data(OBJECT, "Its public information."))
        },
        "/server/specs/oas": {
            "get": read(
                "Describe the service as OpenAPI",
                Answer("This document, for the caller.", {JSON: OBJECT}, headers=(ETAG,)),
                NOT_MODIFIED,
                parameters=("If-None-Match",),
            )
        },
        "/server/specs/types": {
            "get": read(
                "Describe the collections as types of a language",
                Answer("The types, for the caller.", {"text/plain": TEXT}, headers=(ETAG,)),
                NOT_MODIFIED,
                parameters=("language", "If-None-Match"),
            )
        },
        "/docs": {
            "get": read(
                "Show this document as a page",
                Answer("The page.", {"text/html": TEXT}),
            )
        },
        "/docs/{name}": {
            "get": read(
                "Read a file that the page loads",
                Answer("The file.", {"text/css": TEXT, "text/javascript": TEXT}, headers=(ETAG,)),
                NOT_MODIFIED,
                parameters=("If-None-Match",),
            )
        },
        "/metrics": {
            "get": read(
                "Tell metrics to Prometheus",
                Answer("The metrics.", {"text/plain": TEXT}),
                is_for_admins=True,
            )
        },
        "/utils/explain": {
            "get": read(
                "Explain the statement of a read",
                data(OBJECT),
                parameters=("path", "user"),
                is_for_admins=True,
            )
        },
        "/utils/cache/clear": {
            "post": write("Load the structure anew in every process", is_for_admins=True)
        },
        "/utils/hash/generate": {"post": send("Hash a text", texts("string"), data(TEXT))},
        "/utils/hash/verify": {
            "post": send("Compare a text with a hash", texts("string", "hash"), data(FLAG))
        },
        "/utils/random/string": {
            "get": read("Make a random text", data(TEXT), parameters=("length",))
        },
        "/utils/sort/{collection}": {
            "post": write(
                "Move an item to the position of another",
                object_of({"item": ITEM_KEY, "to": ITEM_KEY}),
                parameters=("If-Match",),
            )
        },
        "/utils/revert/{revision}": {
            "post": write(
                "Give an item the values of a revision",
                None,
                data(OBJECT),
                NO_CONTENT,
                parameters=("If-Match",),
            )
        },
        "/utils/export/{collection}": {
            "post": write(
                "Export items into a new file",
                object_of(
                    {"format": one_of_texts(list(FORMATS))},
                    {"query": nullable(OBJECT), "file": nullable(OBJECT)},
                ),
            )
        },
        "/utils/import/{collection}": {
            "post": write(
                "Import items from a file",
                Body(
                    {
                        "text/csv": TEXT,
                        JSON: array_of(OBJECT),
                        "application/x-ndjson": TEXT,
                        "multipart/form-data": object_of({"file": BINARY}),
                    }
                ),
                data(object_of(optional={"created": INTEGER, "updated": INTEGER})),
            )
        },
        "/batch": {
            "post": write("Run several operations, all of them or none", _BATCH, data(array_of({})))
        },
    }
)
