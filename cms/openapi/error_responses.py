"""Errors as they are answered: one response for each status, with an example of each code."""

from __future__ import annotations

from cms.errors import STATUS, Problem
from cms.openapi.json_schemas import FLAG, TEXT, JsonSchema, array_of, object_of, reference
from cms.openapi.operation import ANY_ERRORS, JSON, RATE_LIMITS, RETRY_AFTER, described_headers

ERRORS = "Errors"

STATUSES = frozenset(STATUS.values())

_DESCRIPTIONS = {
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
    extensions = {**object_of({"code": TEXT}), "description": "The code, and details."}
    problem = object_of({"message": TEXT, "extensions": extensions})
    description = "There may be other problems: nothing more was looked at."
    more = {**FLAG, "description": description}
    return object_of({"errors": array_of(problem)}, {"more": more})


def error_responses() -> dict[str, object]:
    """Return the components of the responses of errors by their names."""
    return {response_name(status): _response(status) for status in sorted(STATUSES)}


def response_name(status: int) -> str:
    return f"Error{status}"


def documented_errors(errors: frozenset[int]) -> list[int]:
    """Return the statuses of an operation's errors, with those that every operation has."""
    return sorted((errors | ANY_ERRORS) & STATUSES)


def _response(status: int) -> dict[str, object]:
    examples: dict[str, object] = {}
    for code, code_status in STATUS.items():
        if code_status == status:
            problem = Problem(code, "A sentence that says what is wrong.")
            examples[code] = {"value": {"errors": [problem.as_json()]}}
    response: dict[str, object] = {
        "description": _DESCRIPTIONS.get(status, "An error."),
        "content": {JSON: {"schema": reference(ERRORS), "examples": examples}},
    }
    if status == 429:
        response["headers"] = described_headers(RETRY_AFTER, *RATE_LIMITS)
    if status == 503:
        response["headers"] = described_headers(RETRY_AFTER)
    return response
