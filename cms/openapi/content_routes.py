"""The routes of items, files, comments, flows and dashboards that are no plain rows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from types import MappingProxyType

from cms.mappings import without
from cms.openapi.json_schemas import (
    BINARY,
    KEY,
    OBJECT,
    TEXT,
    JsonSchema,
    any_of,
    array_of,
    object_of,
    texts,
)
from cms.openapi.operation import (
    JSON,
    NO_CONTENT,
    NOT_MODIFIED,
    Answer,
    Body,
    Need,
    Operation,
    PathItem,
    data,
    read,
    write,
)
from cms.openapi.query_parameters import LIST, ONE
from cms.openapi.row_operations import RowSchemas
from cms.schema.system import FILES, FLOW_RUNS

_ANY = "*/*"
_SVG = "image/svg+xml"

_REVISIONS = read(
    "List the revisions of an item",
    data(array_of(OBJECT)),
    NOT_MODIFIED,
    parameters=(*LIST, "If-None-Match"),
)
_REVISION = read(
    "Read an item as a revision holds it",
    data(OBJECT),
    NOT_MODIFIED,
    parameters=(*ONE, "If-None-Match"),
)

_NEW_COMMENT = object_of({"collection": TEXT, "item": KEY, "comment": TEXT})
_TEXT_OF_COMMENT = texts("comment")
_NAMED_COMMENTS = {"keys": array_of(KEY), "query": OBJECT}

_COMMENT = write(
    "Comment on an item, or on several",
    any_of(_NEW_COMMENT, array_of(_NEW_COMMENT)),
    data(any_of(OBJECT, array_of(OBJECT))),
    NO_CONTENT,
    parameters=("fields",),
)
_CHANGE_COMMENTS = write(
    "Change several comments",
    any_of(
        array_of(object_of({"id": KEY, "comment": TEXT})),
        object_of({"data": _TEXT_OF_COMMENT}, _NAMED_COMMENTS),
    ),
    data(array_of(OBJECT)),
    NO_CONTENT,
    parameters=("fields",),
)
_DELETE_COMMENTS = write(
    "Delete several comments", any_of(array_of(KEY), object_of(optional=_NAMED_COMMENTS))
)
_CHANGE_COMMENT = write(
    "Change a comment",
    _TEXT_OF_COMMENT,
    data(OBJECT),
    NO_CONTENT,
    parameters=("fields", "If-Match"),
)
_DELETE_COMMENT = write("Delete a comment", parameters=("If-Match",))

_COMMENTS = {"post": _COMMENT, "patch": _CHANGE_COMMENTS, "delete": _DELETE_COMMENTS}

_ASSET = Operation(
    summary="Read the content of a file",
    answers=(
        Answer("The content, transformed if parameters ask for that.", {_ANY: BINARY}),
        Answer("A part of the content.", {_ANY: BINARY}, status=206),
        replace(NOT_MODIFIED, headers=()),
    ),
    parameters=(
        "key",
        "transforms",
        "fit",
        "image_width",
        "image_height",
        "image_format",
        "quality",
        "withoutEnlargement",
        "focal_point_x",
        "focal_point_y",
        "download",
        "access_token",
        "Range",
        "If-None-Match",
    ),
    errors=frozenset({400, 401, 403, 404, 416}),
)

_PANEL = read(
    "Read what a panel shows",
    Answer("The data, or a picture of them.", {JSON: object_of({"data": {}}), _SVG: TEXT}),
    parameters=("format", "theme", "width", "height"),
)
_TRIGGERED = (
    Answer("What the flow returns.", {JSON: {}}),
    Answer("The flow returns nothing.", status=204),
)


_WEBHOOK_BODIES: Mapping[str, JsonSchema] = MappingProxyType(
    {
        JSON: {},
        "application/x-www-form-urlencoded": {"type": "object"},
        "multipart/form-data": {"type": "object"},
        "text/plain": TEXT,
        "application/xml": TEXT,
    }
)


def _trigger(method: str) -> Operation:
    body = None if method == "GET" else Body(_WEBHOOK_BODIES, is_required=False)
    parameters = () if method == "GET" else ("Idempotency-Key",)
    return Operation(
        summary=f"Run a flow with {method}",
        answers=_TRIGGERED,
        body=body,
        parameters=parameters,
        # A flow answers any of them by an operation of its own.
        errors=frozenset({400, 401, 403, 404, 405, 408, 412, 413, 415, 422}),
    )


CONTENT_ROUTES: Mapping[str, PathItem] = MappingProxyType(
    {
        "/items/{collection}/{key}/revisions": {"get": _REVISIONS},
        "/items/{collection}/{key}/revisions/{revision}": {"get": _REVISION},
        "/activity/comment": _COMMENTS,
        "/activity/comment/{key}": {"patch": _CHANGE_COMMENT, "delete": _DELETE_COMMENT},
        "/comments": _COMMENTS,
        "/comments/{key}": {"patch": _CHANGE_COMMENT, "delete": _DELETE_COMMENT},
        "/assets/{key}": {"get": _ASSET},
        "/assets/{key}/{name}": {"get": _ASSET},
        "/flows/trigger/{key}": {
            method.lower(): _trigger(method) for method in ("GET", "POST", "PUT", "PATCH", "DELETE")
        },
        "/flows/runs/{key}/retry": {
            "post": write("Run a failed run again", need=Need(FLOW_RUNS, "read"))
        },
        "/dashboards/{key}/data": {
            "get": read("Read what the panels of a dashboard show", data({}))
        },
        "/panels/{key}/data": {"get": _PANEL},
    }
)


def file_routes(
    files: RowSchemas, fields: Mapping[str, JsonSchema], *, changeable: Iterable[str]
) -> Mapping[str, PathItem]:
    """Return the routes by which contents of files come, as a form or in JSON.

    `fields` are those that the caller may set of a new file, with their schemas; `changeable` are
    those that it may change.
    """
    # Nothing else tells the name of a content in JSON.
    in_json = object_of(
        {"data": TEXT, "filename_download": TEXT}, without(fields, ("filename_download",))
    )
    written = data(any_of(files.item, array_of(files.item)), "What was written.")
    create = Need(FILES, "create")
    return {
        "/files": {
            "post": write(
                "Upload files",
                Body({"multipart/form-data": _form(fields), JSON: in_json}),
                written,
                NO_CONTENT,
                parameters=ONE,
                need=create,
            )
        },
        "/files/{key}": {
            "patch": write(
                "Change a file, or replace its content by a form",
                Body({JSON: files.change, "multipart/form-data": _form(changeable)}),
                written,
                NO_CONTENT,
                parameters=(*ONE, "If-Match"),
                need=Need(FILES, "update"),
            )
        },
        "/files/import": {
            "post": write(
                "Fetch a file from an address",
                object_of({"url": TEXT}, {"data": object_of(optional=fields)}),
                written,
                NO_CONTENT,
                parameters=ONE,
                need=create,
            )
        },
    }


def _form(fields: Iterable[str]) -> JsonSchema:
    # A form has texts only.
    return object_of({"file": BINARY}, dict.fromkeys(fields, TEXT))
