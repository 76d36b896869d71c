"""Parameters that operations share, by their names, and the schema of filters."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from cms.access.visible_structure import ACTIONS
from cms.items.transfer.formats import FORMATS
from cms.openapi.json_schemas import (
    ANYTHING,
    FLAG,
    INTEGER,
    OBJECT,
    TEXT,
    JsonSchema,
    any_of,
    array_of,
    described,
    object_of,
    one_of_texts,
    reference,
)
from cms.openapi.operation import JSON
from cms.query.language.aggregates import AGGREGATES
from cms.query.language.operators import OPERATORS, OperandKind
from cms.query.language.paging import AFTER
from cms.query.language.parameters import META
from cms.transforms.steps import FITS
from cms.transforms.transform import FORMATS as IMAGE_FORMATS

FILTER = "Filter"
TESTS = "FilterTests"

_FILE_FORMAT = "Answer a file in this format."
_NAMES = array_of(TEXT)
_IMAGE_FORMAT = one_of_texts(IMAGE_FORMATS)
_SHARE: JsonSchema = MappingProxyType({"type": "number", "minimum": 0, "maximum": 1})
_SCALAR: JsonSchema = MappingProxyType({"type": ["string", "number", "boolean", "null"]})
_OPERANDS: Mapping[OperandKind, JsonSchema] = MappingProxyType(
    {
        OperandKind.NOTHING: FLAG,
        OperandKind.ONE: _SCALAR,
        OperandKind.LIST: array_of(_SCALAR),
        OperandKind.TWO: array_of(_SCALAR, minItems=2, maxItems=2),
        OperandKind.PATTERN: TEXT,
        OperandKind.GEOMETRY: OBJECT,
    }
)


def filter_schemas() -> dict[str, JsonSchema]:
    """Return the components that describe filters, with every operator."""
    tests: dict[str, JsonSchema] = {}
    for name, operator in OPERATORS.items():
        tests[name] = described(_OPERANDS[operator.operand_kind], operator.operand_kind.value)
    group = array_of(reference(FILTER))
    # A member is the name of a field, with tests or with the filter of what it points to.
    quantified = {"_some": reference(FILTER), "_none": reference(FILTER)}
    return {
        TESTS: object_of(optional=tests),
        FILTER: {
            **object_of(optional={"_and": group, "_or": group, **quantified}),
            # Additional properties would be, in TypeScript, the type of `_and` as well.
            "patternProperties": {"^[^_]": any_of(reference(FILTER), reference(TESTS))},
        },
    }


def _query(name: str, description: str, schema: JsonSchema = TEXT) -> dict[str, object]:
    return {"name": name, "in": "query", "description": description, "schema": schema}


def _names(name: str, description: str) -> dict[str, object]:
    # Names with commas between them, in one value.
    return {**_query(name, description, _NAMES), "style": "form", "explode": False}


def _json(name: str, description: str, schema: JsonSchema = OBJECT) -> dict[str, object]:
    """Return a parameter whose value is JSON; brackets say the same, `filter[title][_eq]=x`.

    It is a text with a schema of its content: generators of clients read no other parameters.
    """
    content = {"contentMediaType": JSON, "contentSchema": schema}
    return _query(name, description, {**TEXT, "format": "json", **content})


def _header(name: str, description: str) -> dict[str, object]:
    return {"name": name, "in": "header", "description": description, "schema": TEXT}


def _required(parameter: dict[str, object]) -> dict[str, object]:
    return {**parameter, "required": True}


_FILTER = (
    "The rows to answer, as JSON or with brackets, `filter[title][_eq]=x`. A path leads into a "
    "field that holds JSON, `filter[meta.price][_gt]=5`."
)
_DEEP = "Parameters of nested rows, as JSON or with brackets, `deep[pages][_limit]=5`."

_PAGE = (
    "The page of `limit` rows, from 1; 0 is the first one as well. In its place a request may send "
    f"`{AFTER}`, the `meta.next_cursor` of the page before."
)

PARAMETERS: Mapping[str, Mapping[str, object]] = MappingProxyType(
    {
        "fields": _names(
            "fields", "The fields to answer, as paths: `title,author.name,meta.price`."
        ),
        "filter": _json("filter", _FILTER, reference(FILTER)),
        "sort": _names(
            "sort",
            "The fields to sort by, a hyphen for the other direction; `_relevance` of a search.",
        ),
        "limit": _query("limit", "How many rows at most; -1 for all.", {**INTEGER, "minimum": -1}),
        "offset": _query("offset", "How many rows to skip.", {**INTEGER, "minimum": 0}),
        # The two exclude each other, which no schema can say: only one is a parameter.
        "page": _query("page", _PAGE, {**INTEGER, "minimum": 0}),
        "search": _query(
            "search", 'Words that the rows contain, all of them; words in "quotes" are one phrase.'
        ),
        "highlight": _query(
            "highlight", "Whether rows tell in `_highlights` where words of the search are.", FLAG
        ),
        "meta": _names("meta", f"What to tell beside the rows: {', '.join(META)}, or `*`."),
        "aggregate": _json(
            "aggregate",
            f"Functions over rows with their fields: {', '.join(AGGREGATES)}.",
            object_of(optional=dict.fromkeys(AGGREGATES, any_of(TEXT, _NAMES))),
        ),
        "groupBy": _names(
            "groupBy", "The fields whose values group the aggregates, and paths into JSON."
        ),
        "alias": _json("alias", "Other names for fields in the answer, `alias[a]=title`."),
        "deep": _json("deep", _DEEP),
        "export": _query("export", _FILE_FORMAT, one_of_texts(list(FORMATS))),
        "If-Match": _header("If-Match", "Write only what still has this ETag."),
        "If-None-Match": _header("If-None-Match", "Answer 304 if the ETag is still this one."),
        "Idempotency-Key": _header(
            "Idempotency-Key",
            "A text of the client's; a call that is repeated with it writes once.",
        ),
        "path": _required(
            _query(
                "path",
                "A path with its query, `/items/pages?limit=1`.",
                {**TEXT, "format": "uri-reference", "pattern": "^/"},
            )
        ),
        "user": _query("user", "The id of the user to explain for."),
        "required_user": _required(_query("user", "The id of a user, or `public`.")),
        "length": _query(
            "length", "How many characters.", {**INTEGER, "minimum": 1, "maximum": 500}
        ),
        "all": _query("all", "Whether to end every session of the user.", FLAG),
        "redirect": _query("redirect", "Where the browser goes after the login."),
        "state": _query("state", "The state of a login that was begun."),
        "code": _query("code", "The code of the provider."),
        "token": _required(
            _query(
                "token",
                "The token of the link in the mail.",
                {**TEXT, "format": "jwt", "minLength": 1},
            )
        ),
        "collection": _required(_query("collection", "A collection.")),
        "action": _required(_query("action", "An action.", one_of_texts(ACTIONS))),
        "item": _query("item", "The key of an item."),
        "include": _names("include", "What to add to the structure."),
        "schema_export": _query("export", _FILE_FORMAT, one_of_texts(("json", "yaml"))),
        "allow_destructive": _query(
            "allow_destructive", "Whether what deletes data may be done.", FLAG
        ),
        "format": _query("format", "Numbers, or a picture.", one_of_texts(("json", "svg"))),
        "theme": _query("theme", "The colours of the picture.", one_of_texts(("light", "dark"))),
        "width": _query("width", "Pixels.", {**INTEGER, "minimum": 100, "maximum": 4_000}),
        "height": _query("height", "Pixels.", {**INTEGER, "minimum": 100, "maximum": 4_000}),
        "key": _query("key", "The name of a transform of the settings."),
        "transforms": _json("transforms", "Steps of a transform.", array_of(ANYTHING)),
        "fit": _query("fit", "How the image fits width and height.", one_of_texts(FITS)),
        "quality": _query(
            "quality", "The quality of the image.", {**INTEGER, "minimum": 0, "maximum": 100}
        ),
        "image_width": _query("width", "Pixels.", {**INTEGER, "minimum": 1}),
        "image_height": _query("height", "Pixels.", {**INTEGER, "minimum": 1}),
        "image_format": _query(
            "format", "The format of the image; `auto` is one that `Accept` names.", _IMAGE_FORMAT
        ),
        "withoutEnlargement": _query("withoutEnlargement", "Whether no image is enlarged.", FLAG),
        "focal_point_x": _query(
            "focal_point_x", "The point that `cover` keeps visible, from the left.", _SHARE
        ),
        "focal_point_y": _query(
            "focal_point_y", "The point that `cover` keeps visible, from above.", _SHARE
        ),
        "download": _query("download", "Whether a browser saves the file.", FLAG),
        "access_token": _query(
            "access_token", "A token, where the header `Authorization` cannot be sent."
        ),
        "Range": _header("Range", "The bytes to answer."),
        "language": _required(
            _query("language", "The language of the types.", one_of_texts(("python", "typescript")))
        ),
    }
)

ONE = ("fields", "deep", "alias")
"""The parameters of a call that answers one row."""
LIST = (
    *ONE,
    "filter",
    "sort",
    "limit",
    "offset",
    "page",
    "search",
    "highlight",
    "meta",
    "aggregate",
    "groupBy",
    "export",
)
"""The parameters of a call that answers rows."""

PATH_PARAMETERS: Mapping[str, str] = MappingProxyType(
    {
        "collection": "The name of a collection.",
        "field": "The name of a field.",
        "key": "The primary key of a row.",
        "name": "The name of a file; of an asset, the one under which a browser saves it.",
        "provider": "The name of a login provider.",
        "revision": "The id of a revision.",
    }
)
