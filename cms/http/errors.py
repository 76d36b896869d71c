"""Errors as answers: the envelope, and nothing that an unexpected fault could leak (decisions, section 2)."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from itertools import islice
from typing import Any

import falcon

from cms import jsontext
from cms.database.error_mapping import Stale
from cms.errors import STATUS, Problem, Refused
from cms.store.health import refusal_of_stale

log = logging.getLogger("cms")

MAX_ERRORS = 200
"""How many problems an answer holds, whoever has gathered them: a small body may have a hundred thousand."""

RETRY_AFTER_SECONDS = "2"
"""About as long as a database server needs that is started again."""


def write_errors(response: falcon.Response, status: int, problems: Iterable[Problem]) -> None:
    """Write problems as the body of an error; a 503 tells when to try again."""
    response.status = status
    if status == 503:
        response.set_header("Retry-After", RETRY_AFTER_SECONDS)
    response.content_type = falcon.MEDIA_JSON
    response.data = jsontext.dumps(
        {"errors": [_error_entry(problem) for problem in islice(problems, MAX_ERRORS)]}
    )


def on_refused(
    request: falcon.Request, response: falcon.Response, refused: Refused, params: Any
) -> None:
    """Answer what the service itself refuses."""
    write_errors(response, refused.status, refused.problems)


def on_stale(request: falcon.Request, response: falcon.Response, stale: Stale, params: Any) -> None:
    """Answer 503 where the database is not what the service needs: not migrated, or busy beyond patience."""
    refused = refusal_of_stale(stale)
    write_errors(response, refused.status, refused.problems)


def on_http_error(
    request: falcon.Request, response: falcon.Response, error: falcon.HTTPError, params: Any
) -> None:
    """Answer what Falcon refuses: unknown routes, methods, media."""
    problem = _problem_of(request, error)
    if problem.code == "METHOD_NOT_ALLOWED":
        response.set_header("Allow", _allowed(error))
    write_errors(response, STATUS[problem.code], [problem])


def on_fault(
    request: falcon.Request, response: falcon.Response, error: Exception, params: Any
) -> None:
    """Log an unexpected fault under the request's id, and answer that id and no detail."""
    identifier = request.context.id
    log.error("unexpected fault", exc_info=error, extra={"request": identifier})
    problem = Problem(
        "INTERNAL_SERVER_ERROR",
        "An unexpected error occurred; it has been logged.",
        {"id": identifier},
    )
    write_errors(response, 500, [problem])


def _problem_of(request: falcon.Request, error: falcon.HTTPError) -> Problem:
    match error.status_code:
        case 404:
            return Problem("ROUTE_NOT_FOUND", "There is no such route.", {"path": request.path})
        case 405:
            allowed = _allowed(error)
            message = (
                f"The method {request.context.method} is not allowed here; there are {allowed}."
            )
            return Problem("METHOD_NOT_ALLOWED", message, {"allowed": allowed.split(", ")})
        case 413:
            return Problem("CONTENT_TOO_LARGE", "The body is too large.")
        case 415:
            return Problem(
                "UNSUPPORTED_MEDIA_TYPE", "Send JSON with Content-Type: application/json."
            )
        case _:
            return Problem(
                "INVALID_QUERY", error.description or error.title or "The request is not valid."
            )


def _allowed(error: falcon.HTTPError) -> str:
    headers: Any = error.headers or {}
    return with_search(str(dict(headers).get("Allow", "")))


def with_search(allowed: str) -> str:
    """Return the methods of an `Allow` header: SEARCH is served wherever QUERY is."""
    return allowed.replace("QUERY", "QUERY, SEARCH")


def _error_entry(problem: Problem) -> dict[str, object]:
    return {"message": problem.message, "extensions": {**problem.extensions, "code": problem.code}}
