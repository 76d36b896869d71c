"""Errors as answers: the envelope, and no detail of an unexpected error."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from itertools import islice
from typing import Any

import falcon

from cms import jsontext
from cms.database.error_mapping import Stale
from cms.errors import (
    FULL_DISK_ERRORS,
    MAX_PROBLEMS,
    SHORTAGE_ERRORS,
    STATUS,
    UNEXPECTED_ERROR,
    Problem,
    Refused,
    insufficient_storage,
    unavailable,
)
from cms.http.requests.media import NOT_JSON
from cms.http.requests.request import Request
from cms.store.refusals import refusal_of_stale

log = logging.getLogger("cms")

MAX_ERRORS = 200
"""How many problems an answer holds: a small body may have a hundred thousand."""

_THREADING_ERRORS = ("can't start new thread", "can't allocate lock")
"""What Python says by a RuntimeError where the system refuses a thread, or memory for a lock."""

RETRY_AFTER_SECONDS = "2"
"""About as long as a database server takes to start again."""


def write_errors(response: falcon.Response, status: int, problems: Iterable[Problem]) -> None:
    """Write problems as the body of an error; a 503 says when to try again.

    `more` in the body says that there may be other problems, which nobody has looked for.
    """
    response.status = status
    if status == 503:
        response.set_header("Retry-After", RETRY_AFTER_SECONDS)
    response.content_type = falcon.MEDIA_JSON
    errors = [problem.as_json() for problem in islice(problems, MAX_ERRORS)]
    body: dict[str, object] = {"errors": errors}
    if len(errors) >= MAX_PROBLEMS:
        body["more"] = True
    response.data = jsontext.dumps(body)


def on_refused(request: Request, response: falcon.Response, refused: Refused, params: Any) -> None:
    """Answer a request that the service refuses."""
    # A flow, and not its route, decides which method it takes.
    allowed = refused.problems[0].extensions.get("allowed")
    if refused.problems[0].code == "METHOD_NOT_ALLOWED" and isinstance(allowed, list):
        response.set_header("Allow", ", ".join(allowed))
    write_errors(response, refused.status, refused.problems)


def on_stale(request: Request, response: falcon.Response, stale: Stale, params: Any) -> None:
    """Answer 503 where the database cannot serve: not migrated, or too busy."""
    refused = refusal_of_stale(stale)
    write_errors(response, refused.status, refused.problems)


def on_http_error(
    request: Request, response: falcon.Response, error: falcon.HTTPError, params: Any
) -> None:
    """Answer a request that Falcon refuses: unknown routes, methods, media types."""
    problem = _problem_of(request, error)
    if problem.code == "METHOD_NOT_ALLOWED":
        response.set_header("Allow", _allowed_methods(error))
    write_errors(response, STATUS[problem.code], [problem])


def on_system_error(
    request: Request, response: falcon.Response, error: OSError, params: Any
) -> None:
    """Answer 507 where a disk is full, such as that of temporary files, and 503 for a shortage."""
    if error.errno in SHORTAGE_ERRORS:
        _answer_shortage(request, response, error)
        return
    if error.errno not in FULL_DISK_ERRORS:
        on_unexpected_error(request, response, error, params)
        return
    log.error("the disk is full: %s", error.strerror, extra={"request": request.id})
    refused = insufficient_storage("service")
    write_errors(response, refused.status, refused.problems)


def on_memory_error(
    request: Request, response: falcon.Response, error: MemoryError, params: Any
) -> None:
    """Answer 503 where the system gives this process no more memory."""
    _answer_shortage(request, response, error)


def on_runtime_error(
    request: Request, response: falcon.Response, error: RuntimeError, params: Any
) -> None:
    """Answer 503 where the system gives this process no more threads."""
    if str(error) in _THREADING_ERRORS:
        _answer_shortage(request, response, error)
    else:
        on_unexpected_error(request, response, error, params)


def _answer_shortage(request: Request, response: falcon.Response, error: Exception) -> None:
    log.error(
        "a request needs more memory, threads or files than there are: %s",
        str(error) or type(error).__name__,
        extra={"request": request.id},
    )
    refused = unavailable("service", "It has no memory, threads or files left for this request")
    write_errors(response, refused.status, refused.problems)


def on_unexpected_error(
    request: Request, response: falcon.Response, error: Exception, params: Any
) -> None:
    """Log an unexpected error under the request's id; the answer holds that id and no detail."""
    request_id = request.id
    # The traceback goes to the log only: it may hold values of the request and of rows.
    log.error("unexpected fault", exc_info=error, extra={"request": request_id})
    problem = Problem(
        "INTERNAL_SERVER_ERROR",
        UNEXPECTED_ERROR,
        {"id": request_id},
    )
    write_errors(response, 500, [problem])


def _problem_of(request: Request, error: falcon.HTTPError) -> Problem:
    match error.status_code:
        case 404:
            return Problem("ROUTE_NOT_FOUND", "There is no such route.", {"path": request.path})
        case 405:
            allowed_methods = _allowed_methods(error)
            # As the client sent it: Falcon was given another name for some methods.
            method = request.sent_method
            message = f"The method {method} is not allowed here; there are {allowed_methods}."
            return Problem("METHOD_NOT_ALLOWED", message, {"allowed": allowed_methods.split(", ")})
        case 413:
            return Problem("CONTENT_TOO_LARGE", "The body is too large.")
        case 415:
            return NOT_JSON
        case _:
            # Requests that Falcon itself refuses: malformed query strings, headers and so on.
            return Problem(
                "INVALID_QUERY", error.description or error.title or "The request is not valid."
            )


def _allowed_methods(error: falcon.HTTPError) -> str:
    headers: Any = error.headers or {}
    return with_search(str(dict(headers).get("Allow", "")))


def with_search(allowed: str) -> str:
    """Add SEARCH to the methods of an `Allow` header: it is served wherever QUERY is."""
    return allowed.replace("QUERY", "QUERY, SEARCH")


def add_error_handlers(app: falcon.App[Any, Any]) -> None:
    """Have an application answer every error in the form of the service."""
    # For each error Falcon takes the handler of the nearest class.
    app.add_error_handler(Exception, on_unexpected_error)
    app.add_error_handler(OSError, on_system_error)
    app.add_error_handler(MemoryError, on_memory_error)
    app.add_error_handler(RuntimeError, on_runtime_error)
    app.add_error_handler(falcon.HTTPError, on_http_error)
    app.add_error_handler(Refused, on_refused)
    app.add_error_handler(Stale, on_stale)
