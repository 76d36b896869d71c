"""The id of a request, the common headers of its answer, its line in the log, its metrics."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from typing import Any, cast

import falcon

from cms.http.answers.error_handlers import with_search
from cms.http.requests.administrator_check import is_administrator
from cms.http.requests.request import RequestState, method_label
from cms.logs import log_request, logs_requests
from cms.store.store import Store
from cms.tracing import process as tracing

DEFAULT_CACHE_CONTROL = "no-cache"
"""The Cache-Control of an answer that names none: a cache may keep it, and asks each time."""

NO_ROUTE = "none"
"""The route, in metrics, of requests that reach none: unknown paths, and preflights of CORS."""

# As proxies and tracing tools make them: UUIDs, hexadecimal digits, words with dots and colons.
_REQUEST_ID = re.compile(r"[A-Za-z0-9_.:-]{1,100}")


def request_id_of(environ: Mapping[str, Any]) -> str | None:
    """Return the id that a client has given its request, if it is one."""
    client_id: str | None = environ.get("HTTP_X_REQUEST_ID")
    # Any other text could forge a line of the log, or a header.
    if client_id and _REQUEST_ID.fullmatch(client_id):
        return client_id
    return None


def vary_header(named: str | None = None, *, by_cookie: bool) -> str:
    """Return the Vary of an answer that names these headers, or none."""
    vary = named or "Origin"
    if by_cookie and "Cookie" not in vary:
        vary += ", Cookie"
    return vary


def log_answer(state: RequestState, path: str, status: int, *, seconds: float) -> None:
    """Write the line of an answered request in the log."""
    # What exceeds a limit has a line of its own, once for each window.
    if logs_requests() and not state.is_over_limit:
        log_request(
            {
                "request": state.id,
                "method": state.method,
                "path": path,
                "status": status,
                "ms": round(seconds * 1000, 2),
            }
        )


class RequestTracing:
    """Gives a request its id, its answer the common headers, and the log a line; counts it."""

    def __init__(self, store: Store, *, varies_by_cookie: bool = False) -> None:
        self._store = store
        self._varies_by_cookie = varies_by_cookie
        self._metrics = store.database.metrics
        self._meter = store.database.meter

    def process_request(self, request: falcon.Request, response: falcon.Response) -> None:
        client_id = request_id_of(request.env)
        if client_id:
            request.context.id = client_id
        if tracing.active is not None:
            request.context.span = tracing.active.begin_request(request.env)
        # Measured only if the header asks for it, so that other requests cost nothing more.
        if request.env.get("HTTP_X_SERVER_TIMING") == "1":
            request.context.statement_seconds = self._meter.seconds

    def process_response(
        self,
        request: falcon.Request,
        response: falcon.Response,
        resource: Any,
        succeeded: bool,  # noqa: FBT001
    ) -> None:
        response.set_header("X-Request-Id", request.context.id)
        # An error must not be cached by the header of the answer that it replaces.
        if response.get_header("Cache-Control") is None or not succeeded:
            is_private = request.path.startswith("/auth")
            response.set_header(
                "Cache-Control", "no-store" if is_private else DEFAULT_CACHE_CONTROL
            )
        self._set_vary(response)
        if request.method == "OPTIONS" and (allowed := response.get_header("Allow")):
            response.set_header("Allow", with_search(allowed))
        seconds = time.perf_counter() - request.context.began
        if request.context.statement_seconds is not None:
            self._set_server_timing(request, response, seconds)
        status = response.status_code
        route = request.uri_template or NO_ROUTE
        method = method_label(request, status)
        self._metrics.count_request(method, route, str(status), seconds)
        if request.context.span is not None:
            request.context.span.end(method=method, route=route, status=status)
        state = cast(RequestState, request.context)
        log_answer(state, request.path, status, seconds=seconds)
        # Here, as the first middleware is the last one that sees an answer.
        state.end()

    def _set_vary(self, response: falcon.Response) -> None:
        # A user who signs in after another one, in the same browser, must not see answers that the
        # browser has kept. Public answers are the same for all.
        by_cookie = self._varies_by_cookie and not _is_public(response)
        response.set_header("Vary", vary_header(response.get_header("Vary"), by_cookie=by_cookie))

    def _set_server_timing(
        self, request: falcon.Request, response: falcon.Response, seconds: float
    ) -> None:
        """Tell an administrator the time of the statements and of the whole request."""
        began = request.context.statement_seconds
        # Before the next statement, which asks who calls.
        statement_seconds = self._meter.seconds - began
        # A database that does not answer need not be asked again.
        if response.status_code != 503 and is_administrator(self._store, request):
            durations = f"db;dur={statement_seconds * 1000:.2f}, total;dur={seconds * 1000:.2f}"
            response.set_header("Server-Timing", durations)


def _is_public(response: falcon.Response) -> bool:
    return (response.get_header("Cache-Control") or "").startswith("public")
