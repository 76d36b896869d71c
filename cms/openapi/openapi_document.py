"""The document of OpenAPI 3.1 for one caller, kept as long as structure and rights stay."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from cms import jsontext
from cms.distribution import installed_version
from cms.errors import STATUS, Problem
from cms.openapi.collection_schemas import VisibleCollections, row_components
from cms.openapi.json_schemas import (
    FLAG,
    TEXT,
    JsonSchema,
    array_of,
    component_part,
    described,
    object_of,
    reference,
)
from cms.openapi.operation import (
    ANY_ERRORS,
    JSON,
    RATE_LIMITS,
    RETRY_AFTER,
    Answer,
    Operation,
    described_headers,
)
from cms.openapi.query_parameters import PARAMETERS, PATH_PARAMETERS, filter_schemas
from cms.openapi.route_table import routes_of
from cms.openapi.structure_routes import RECORD_SCHEMAS
from cms.store.context import RequestContext
from cms.store.identity import Identity
from cms.store.store import Store

JsonObject = dict[str, object]

OPENAPI_VERSION = "3.1.0"

_INTERFACE_VERSION = "1"
"""That of the paths, which have no number: what is served stays as it is."""

_EXTENSION_METHODS = {"search": "x-search"}
"""Methods that OpenAPI 3.1 has no place for, with the extension that describes them."""

_DESCRIPTION = (
    "What this caller may use. Lists are also read by the method SEARCH, with their parameters "
    "under `query` in the body: `x-search`. Files of the parameter `export` are streamed."
)


class Served(NamedTuple):
    """An application: the templates of its paths, what stands before them, its session cookie."""

    templates: frozenset[str]
    prefix: str
    session_cookie: str


def read_openapi(store: Store, identity: Identity, served: Served) -> bytes:
    """Return the document of OpenAPI for a caller, as JSON."""
    for attempt in store.unversioned_reads(identity):
        with attempt as context:
            answer = _cached_openapi(context, served=served)
    return answer


def _cached_openapi(context: RequestContext, *, served: Served) -> bytes:
    # Callers with equal policies are shown the same.
    key = "openapi", context.actor.policy, served.prefix
    return context.snapshot.documents.setdefault_with(key, lambda: _openapi(context, served))


def _openapi(context: RequestContext, served: Served) -> bytes:
    visible = VisibleCollections.of(context.actor.policy, context.snapshot.catalogue)
    return jsontext.dumps(_plain(openapi_document(visible, served)))


def _plain(value: object) -> object:
    """Return a value with dicts for all mappings, which are written as JSON."""
    if isinstance(value, Mapping):
        return {key: _plain(member) for key, member in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(element) for element in value]
    return value


def openapi_document(visible: VisibleCollections, served: Served) -> JsonObject:
    """Return the description of an application for a caller."""
    paths: JsonObject = {}
    for path, operations in routes_of(visible, served.templates).items():
        paths[path] = _path_item(path, operations)
    security_schemes = _security_schemes(served.session_cookie)
    return {
        "openapi": OPENAPI_VERSION,
        "info": {"title": "CMS", "version": _version(visible), "description": _DESCRIPTION},
        "servers": [{"url": served.prefix or "/"}],
        # Nobody has to be somebody: without credentials the Public role calls.
        "security": [{}, *({name: []} for name in security_schemes)],
        "paths": paths,
        "components": {
            "schemas": {
                ERRORS: error_schema(),
                **RECORD_SCHEMAS,
                **filter_schemas(),
                **row_components(visible),
            },
            "parameters": PARAMETERS,
            "responses": error_responses(),
            "securitySchemes": security_schemes,
        },
    }


def _version(visible: VisibleCollections) -> str:
    """Return the version of the service to administrators, to all others that of the interface.

    Somebody who looks for a version with a known fault must not find it here.
    """
    if visible.policy.is_admin:
        return installed_version()
    return _INTERFACE_VERSION


def _security_schemes(session_cookie: str) -> JsonObject:
    return {
        "token": {
            "type": "http",
            "scheme": "bearer",
            "description": "An access token of a login, or a static token.",
        },
        "session": {
            "type": "apiKey",
            "in": "cookie",
            "name": session_cookie,
            "description": "The cookie of a login with the mode `session`.",
        },
    }


# Operations


def _path_item(path: str, operations: Mapping[str, Operation]) -> JsonObject:
    item: JsonObject = {}
    parameters = [_path_parameter(name) for name in _names_in(path)]
    if parameters:
        item["parameters"] = parameters
    for method, operation in operations.items():
        key = _EXTENSION_METHODS.get(method, method)
        item[key] = _operation(path, method, operation)
    return item


def _names_in(path: str) -> Iterator[str]:
    return (match[1] for match in re.finditer(r"{(\w+)}", path))


def _path_parameter(name: str) -> JsonObject:
    schema = {**TEXT, "minLength": 1}
    description = PATH_PARAMETERS[name]
    return {
        "name": name,
        "in": "path",
        "required": True,
        "description": description,
        "schema": schema,
    }


def _operation(path: str, method: str, operation: Operation) -> JsonObject:
    printed: JsonObject = {
        "tags": [path.split("/")[1]],
        "summary": operation.summary,
        "operationId": _operation_id(path, method),
        "responses": _responses(operation),
    }
    if operation.parameters:
        printed["parameters"] = [
            {"$ref": f"#/components/parameters/{name}"} for name in operation.parameters
        ]
    if operation.body:
        printed["requestBody"] = {
            "required": operation.body.is_required,
            "content": _content(operation.body.content),
        }
    return printed


def _operation_id(path: str, method: str) -> str:
    names = [method]
    for part in path.strip("/").split("/"):
        # A dollar sign, so that `/items/{collection}` is not a collection of the name `collection`.
        if part.startswith("{"):
            names.append(f"${part[1:-1]}")
        else:
            names.append(component_part(part))
    return ".".join(names)


def _responses(operation: Operation) -> JsonObject:
    responses: JsonObject = {str(answer.status): _response(answer) for answer in operation.answers}
    for status in sorted((operation.errors | ANY_ERRORS) & STATUSES):
        # An operation may answer such a status in a form of its own.
        error = {"$ref": f"#/components/responses/{response_name(status)}"}
        responses.setdefault(str(status), error)
    return responses


def _response(answer: Answer) -> JsonObject:
    response: JsonObject = {"description": answer.description}
    if answer.content:
        response["content"] = _content(answer.content)
    if answer.headers:
        response["headers"] = described_headers(*answer.headers)
    return response


def _content(content: Mapping[str, JsonSchema]) -> JsonObject:
    return {media_type: {"schema": schema} for media_type, schema in content.items()}


# Errors: one response for each status, with an example of each code

ERRORS = "Errors"

STATUSES = frozenset(STATUS.values())

_ERROR_DESCRIPTIONS = {
    400: "The request is not valid.",
    401: "The caller is not recognised.",
    403: "The caller may not do this, or there is no such thing that it may know of.",
    404: "There is no such thing.",
    405: "There is no such method.",
    408: "The body did not come in time.",
    412: "What would be written has another ETag by now.",
    413: "The body is too large.",
    415: "The body has another media type.",
    416: "The content has no such bytes.",
    422: "The values cannot be stored.",
    429: "Too many requests.",
    431: "The head of the request is too large.",
    500: "An unexpected error; the log has more about it.",
    503: "Something that the service needs does not answer.",
    507: "A disk is full; nothing is stored.",
}


def error_schema() -> JsonSchema:
    """Return the component of every error."""
    extensions = described(object_of({"code": TEXT}), "The code, and details.")
    problem = object_of({"message": TEXT, "extensions": extensions})
    more = described(FLAG, "There may be other problems: nothing more was looked at.")
    return object_of({"errors": array_of(problem)}, {"more": more})


def error_responses() -> dict[str, object]:
    """Return the components of the responses of errors by their names."""
    return {response_name(status): _error_response(status) for status in sorted(STATUSES)}


def response_name(status: int) -> str:
    return f"Error{status}"


def _error_response(status: int) -> dict[str, object]:
    examples: dict[str, object] = {}
    for code, code_status in STATUS.items():
        if code_status == status:
            problem = Problem(code, "A sentence that says what is wrong.")
            examples[code] = {"value": {"errors": [problem.as_json()]}}
    response: dict[str, object] = {
        "description": _ERROR_DESCRIPTIONS.get(status, "An error."),
        "content": {JSON: {"schema": reference(ERRORS), "examples": examples}},
    }
    if status == 429:
        response["headers"] = described_headers(RETRY_AFTER, *RATE_LIMITS)
    if status == 503:
        response["headers"] = described_headers(RETRY_AFTER)
    return response
