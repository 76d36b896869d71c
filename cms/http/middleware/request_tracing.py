"""The id of a request, the common headers of its answer, its line in the log, its metrics."""

from __future__ import annotations

import time
from typing import Any

import falcon

from cms.http.answers.error_handlers import with_search
from cms.http.requests.authenticator import Authenticator
from cms.http.requests.request import UNSUPPORTED, Request, is_administrator
from cms.logs import log_request
from cms.metrics.families import OTHER_METHOD
from cms.store.store import Store
from cms.tracing import process as tracing

DEFAULT_CACHE_CONTROL = "no-cache"
"""The Cache-Control of an answer that names none: a cache may keep it, and asks each time."""

NO_ROUTE = "none"
"""The route, in metrics, of requests that reach none: unknown paths, and preflights of CORS."""


class RequestTracing:
    """Gives an answer the common headers, the log a line and the metrics a count.

    It is the first to see a request, and the last one to see its answer.
    """

    def __init__(
        self, store: Store, authenticator: Authenticator, *, varies_by_cookie: bool = False
    ) -> None:
        self._store = store
        self._authenticator = authenticator
        self._varies_by_cookie = varies_by_cookie
        self._metrics = store.database.metrics
        self._meter = store.database.meter

    def process_request(self, request: Request, response: falcon.Response) -> None:
        request.authenticator = self._authenticator
        request.trusted_proxies = self._authenticator.trusted_proxies
        if tracing.active is not None:
            request.span = tracing.active.begin_request(request.env)
        # Measured only if the header asks for it, so that other requests cost nothing more.
        if request.env.get("HTTP_X_SERVER_TIMING") == "1":
            request.statement_seconds = self._meter.seconds

    def process_response(
        self,
        request: Request,
        response: falcon.Response,
        resource: Any,
        succeeded: bool,  # noqa: FBT001
    ) -> None:
        response.set_header("X-Request-Id", request.id)
        # An error must not be cached by the header of the answer that it replaces.
        if response.get_header("Cache-Control") is None or not succeeded:
            is_private = request.path.startswith("/auth")
            response.set_header(
                "Cache-Control", "no-store" if is_private else DEFAULT_CACHE_CONTROL
            )
        vary = response.get_header("Vary") or "Origin"
        # A user who signs in after another one, in the same browser, must not see answers that the
        # browser has kept. Public answers are the same for all.
        if self._varies_by_cookie and "Cookie" not in vary and not _is_public(response):
            vary += ", Cookie"
        response.set_header("Vary", vary)
        if request.method == "OPTIONS" and (allowed := response.get_header("Allow")):
            response.set_header("Allow", with_search(allowed))
        seconds = time.perf_counter() - request.began
        if request.statement_seconds is not None:
            # Before the next statement, which asks who calls.
            statement_seconds = self._meter.seconds - request.statement_seconds
            self._set_server_timing(request, response, statement_seconds, seconds)
        status = response.status_code
        route = request.uri_template or NO_ROUTE
        # Clients can make up any number of methods. Even the two dozen standard ones, on each
        # route, would take all the room for series.
        is_served = request.method != UNSUPPORTED and status != 405
        method = request.sent_method if is_served else OTHER_METHOD
        self._metrics.count_request(method, route, str(status), seconds)
        if request.span is not None:
            request.span.end(method=method, route=route, status=status)
        # What exceeds a limit has a line of its own, once for each window.
        if request.usage is None or request.usage.passed:
            log_request(request.id, request.sent_method, request.path, status, seconds)

    def _set_server_timing(
        self,
        request: Request,
        response: falcon.Response,
        statement_seconds: float,
        seconds: float,
    ) -> None:
        """Tell an administrator the time of the statements and of the whole request."""
        # A database that does not answer need not be asked again.
        if response.status_code != 503 and is_administrator(self._store, request):
            durations = f"db;dur={statement_seconds * 1000:.2f}, total;dur={seconds * 1000:.2f}"
            response.set_header("Server-Timing", durations)


def _is_public(response: falcon.Response) -> bool:
    return (response.get_header("Cache-Control") or "").startswith("public")
