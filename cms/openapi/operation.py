"""Operations of the service as values: the inputs and answers of a route."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from cms.openapi.json_schemas import INTEGER, TEXT, JsonSchema, object_of

JSON = "application/json"

READ_ERRORS = frozenset({400, 401, 403, 404})
WRITE_ERRORS = READ_ERRORS | {408, 412, 413, 415, 422}
ANY_ERRORS = frozenset({429, 431, 500, 503, 507})
"""The statuses that every operation may answer, whatever it does."""


class Need(NamedTuple):
    """The permission without which a caller is not shown an operation."""

    collection: str
    action: str


class Header(NamedTuple):
    name: str
    description: str
    schema: JsonSchema = TEXT


ETAG = Header("ETag", "The version of the answer, for If-None-Match and If-Match.")
RETRY_AFTER = Header("Retry-After", "Seconds to wait.", INTEGER)
RATE_LIMITS = (
    Header("X-RateLimit-Limit", "How many requests pass in the tightest window.", INTEGER),
    Header("X-RateLimit-Remaining", "How many are left in it.", INTEGER),
    Header("X-RateLimit-Reset", "When it ends, in seconds since 1970.", INTEGER),
)


def described_headers(*headers: Header) -> dict[str, object]:
    """Return the headers of an answer as the document has them."""
    return {
        header.name: {"description": header.description, "schema": header.schema}
        for header in headers
    }


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer that is no error: its content by media types, none for an empty one."""

    description: str
    content: Mapping[str, JsonSchema] = field(default_factory=dict)
    status: int = 200
    headers: tuple[Header, ...] = ()


@dataclass(frozen=True, slots=True)
class Body:
    content: Mapping[str, JsonSchema]
    is_required: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """One method of a route.

    `parameters` are names of query_parameters.py. An operation of administrators is not shown to
    anybody else, one with `need` to nobody without the permission.
    """

    summary: str
    answers: tuple[Answer, ...]
    body: Body | None = None
    parameters: tuple[str, ...] = ()
    errors: frozenset[int] = READ_ERRORS
    is_for_admins: bool = False
    need: Need | None = None
    description: str = ""


PathItem = Mapping[str, Operation]
"""The operations of a route by their methods in small letters; `search` for SEARCH and QUERY."""

NO_CONTENT = Answer("Done; there is nothing to show.", status=204)
NOT_MODIFIED = Answer("What the client has is current.", status=304, headers=(ETAG,))


def data(schema: JsonSchema, description: str = "The answer.") -> Answer:
    """Return an answer in the common form, `{"data": …}`."""
    return Answer(description, {JSON: object_of({"data": schema})})


def json_body(schema: JsonSchema, *, is_required: bool = True) -> Body:
    return Body({JSON: schema}, is_required)


def read(
    summary: str,
    *answers: Answer,
    parameters: tuple[str, ...] = (),
    is_for_admins: bool = False,
    need: Need | None = None,
) -> Operation:
    """Return an operation that changes nothing."""
    return Operation(
        summary=summary,
        answers=answers,
        parameters=parameters,
        is_for_admins=is_for_admins,
        need=need,
    )


def send(
    summary: str,
    body: Body | JsonSchema | None = None,
    *answers: Answer,
    parameters: tuple[str, ...] = (),
    is_for_admins: bool = False,
    need: Need | None = None,
) -> Operation:
    """Return an operation with a body; without answers it answers 204."""
    return Operation(
        summary=summary,
        answers=answers or (NO_CONTENT,),
        body=body if body is None or isinstance(body, Body) else json_body(body),
        parameters=parameters,
        errors=WRITE_ERRORS,
        is_for_admins=is_for_admins,
        need=need,
    )


def write(
    summary: str,
    body: Body | JsonSchema | None = None,
    *answers: Answer,
    parameters: tuple[str, ...] = (),
    is_for_admins: bool = False,
    need: Need | None = None,
) -> Operation:
    """Return an operation that changes something, and does so once for an Idempotency-Key."""
    operation = send(summary, body, *answers, is_for_admins=is_for_admins, need=need)
    return replace(operation, parameters=(*parameters, "Idempotency-Key"))
