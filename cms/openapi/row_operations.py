"""The operations on the rows of a collection, on whatever route."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType

from cms.items.transfer.formats import FORMATS
from cms.mappings import without
from cms.openapi.json_schemas import (
    INTEGER,
    KEYS,
    OBJECT,
    TEXT,
    JsonSchema,
    any_of,
    array_of,
    nullable,
    object_of,
)
from cms.openapi.operation import (
    ETAG,
    JSON,
    NO_CONTENT,
    NOT_MODIFIED,
    Answer,
    Need,
    Operation,
    data,
    json_body,
    read,
    send,
    write,
)
from cms.openapi.query_parameters import LIST, ONE
from cms.query.language.parameters import COUNT_ESTIMATE, NEXT_CURSOR, RANKED


@dataclass(frozen=True, slots=True)
class RowSchemas:
    """The schemas of the rows of a collection: as they are answered, as they are sent."""

    item: JsonSchema
    new_item: JsonSchema
    change: JsonSchema


@dataclass(frozen=True, slots=True)
class TitledRows:
    """The rows of a collection under their title; `name` is None for those of any collection."""

    title: str
    schemas: RowSchemas
    name: str | None

    def need(self, action: str) -> Need | None:
        if not self.name:
            return None
        return Need(self.name, action)


_YAML = FORMATS["yaml"].media_type
_ROWS = "The rows, or a file of them; `alias`, `aggregate` and `groupBy` give them other members."
_META = object_of(
    optional={
        "total_count": INTEGER,
        "filter_count": INTEGER,
        COUNT_ESTIMATE: INTEGER,
        NEXT_CURSOR: nullable(TEXT),
        RANKED: INTEGER,
    }
)


def _list_answer(rows: TitledRows) -> Answer:
    listed = array_of(rows.schemas.item)
    # A singleton is one row; what is known by its name is none.
    data = listed if rows.name else {**listed, "type": ["array", "object"]}
    # A file in JSON is a list without anything around it. Without a type the schema fits both, and
    # generators of types see what is around the rows of an answer that is no file.
    envelope = without({**object_of({"data": data}, {"meta": _META}), **listed}, {"type"})
    content: dict[str, JsonSchema] = {JSON: envelope}
    for file_format in FORMATS.values():
        content.setdefault(file_format.media_type.partition(";")[0], TEXT)
    # Of YAML, as of JSON, a schema describes the values in it.
    content[_YAML] = listed
    return Answer(_ROWS, content, headers=(ETAG,))


def _written(schema: JsonSchema) -> tuple[Answer, ...]:
    unseen = replace(NO_CONTENT, description="Done; the caller may not read what was written.")
    return data(schema, "What was written."), unseen


def _one_or_several(item: JsonSchema) -> JsonSchema:
    return any_of(item, array_of(item))


def list_rows(rows: TitledRows) -> Operation:
    answer = _list_answer(rows)
    return read(
        f"List {rows.title}",
        answer,
        NOT_MODIFIED,
        parameters=(*LIST, "If-None-Match"),
        need=rows.need("read"),
    )


def search_rows(rows: TitledRows) -> Operation:
    body = json_body(object_of(optional={"query": OBJECT}), is_required=False)
    answer = _list_answer(rows)
    summary = f"List {rows.title}, with the parameters in the body"
    return send(summary, body, answer, need=rows.need("read"))


def create_rows(rows: TitledRows) -> Operation:
    return write(
        f"Create {rows.title}",
        _one_or_several(rows.schemas.new_item),
        *_written(_one_or_several(rows.schemas.item)),
        parameters=ONE,
        need=rows.need("create"),
    )


def change_rows(rows: TitledRows) -> Operation:
    selected = object_of({"data": rows.schemas.change}, {"keys": KEYS, "query": OBJECT})
    body = any_of(array_of(rows.schemas.change), selected, rows.schemas.change)
    return write(
        f"Change several {rows.title}",
        body,
        *_written(_one_or_several(rows.schemas.item)),
        parameters=(*ONE, "If-Match"),
        need=rows.need("update"),
    )


def delete_rows(rows: TitledRows) -> Operation:
    selected = object_of(optional={"keys": KEYS, "query": OBJECT})
    return write(
        f"Delete several {rows.title}",
        any_of(KEYS, selected),
        need=rows.need("delete"),
    )


def read_row(rows: TitledRows) -> Operation:
    answer = replace(data(rows.schemas.item, "The row."), headers=(ETAG,))
    return read(
        f"Read one of {rows.title}",
        answer,
        NOT_MODIFIED,
        parameters=(*ONE, "If-None-Match"),
        need=rows.need("read"),
    )


def search_row(rows: TitledRows) -> Operation:
    body = json_body(object_of(optional={"query": OBJECT}), is_required=False)
    answer = data(rows.schemas.item, "The row.")
    summary = f"Read one of {rows.title} as a body asks for it"
    return send(summary, body, answer, need=rows.need("read"))


def change_row(rows: TitledRows) -> Operation:
    return write(
        f"Change one of {rows.title}",
        rows.schemas.change,
        *_written(rows.schemas.item),
        parameters=(*ONE, "If-Match"),
        need=rows.need("update"),
    )


def delete_row(rows: TitledRows) -> Operation:
    return write(f"Delete one of {rows.title}", parameters=("If-Match",), need=rows.need("delete"))


_LIST_METHODS: Mapping[str, Callable[[TitledRows], Operation]] = MappingProxyType(
    {
        "get": list_rows,
        "search": search_rows,
        "post": create_rows,
        "patch": change_rows,
        "delete": delete_rows,
    }
)
_ROW_METHODS: Mapping[str, Callable[[TitledRows], Operation]] = MappingProxyType(
    {"get": read_row, "search": search_row, "patch": change_row, "delete": delete_row}
)


def list_operations(rows: TitledRows, methods: str) -> dict[str, Operation]:
    """Return the operations of a route of several rows, for methods with blanks between them."""
    return {method: _LIST_METHODS[method](rows) for method in methods.split()}


def row_operations(rows: TitledRows, methods: str) -> dict[str, Operation]:
    """Return the operations of a route of one row."""
    return {method: _ROW_METHODS[method](rows) for method in methods.split()}
