"""GET /server/ping without Falcon: load balancers of many machines ask it all the time.

Pings that need more than the usual headers are left to the resource: other methods, browsers of
other sites, traces, and paths that are written in another way.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

from cms.config import Config
from cms.http.middleware.rate_limit import usage_headers
from cms.http.middleware.request_tracing import DEFAULT_CACHE_CONTROL
from cms.http.requests.paths import PING_PATH
from cms.http.requests.request import address_of, request_id_of
from cms.logs import log_request, writes_requests_itself
from cms.metrics.metrics import Metrics
from cms.rate_limits.limiter import RateLimiter
from cms.tracing import process as tracing

BODY = b"pong"

_OTHER_WORK = frozenset(
    ("HTTP_ORIGIN", "HTTP_X_SERVER_TIMING", "HTTP_TRANSFER_ENCODING", "CONTENT_LENGTH")
)
"""Headers that only the resource handles."""


class Ping:
    """Answers pings in the same words as the resource behind Falcon."""

    def __init__(
        self,
        metrics: Metrics,
        limiter: RateLimiter | None,
        config: Config,
        *,
        varies_by_cookie: bool,
    ) -> None:
        self._metrics = metrics
        self._limiter = limiter
        self._trusted_proxies = config.ip_trust_proxy
        self._headers = [
            ("cache-control", DEFAULT_CACHE_CONTROL),
            ("vary", "Origin, Cookie" if varies_by_cookie else "Origin"),
            ("content-type", "text/plain; charset=utf-8"),
            ("content-length", str(len(BODY))),
        ]

    def is_immediate(self, environ: Mapping[str, Any]) -> bool:
        """Tell whether a request is a ping that is answered without waiting for anything."""
        if environ.get("PATH_INFO") != PING_PATH:
            return False
        is_counted_here = self._limiter is None or self._limiter.is_local
        return is_counted_here and self._answers(environ) and writes_requests_itself()

    def answer(
        self, environ: Mapping[str, Any], start_response: Callable[..., Any]
    ) -> list[bytes] | None:
        """Answer a ping as WSGI does; None for a request that the resource has to answer."""
        if not self._answers(environ):
            return None
        method = environ["REQUEST_METHOD"]
        began = time.perf_counter()
        request_id = request_id_of(environ)
        headers = [*self._headers, ("x-request-id", request_id)]
        is_over_limit = False
        if self._limiter is not None:
            # Counted like any other request, but never refused.
            address = address_of(environ, trusted_proxies=self._trusted_proxies)
            usage = self._limiter.count_request(address)
            headers += usage_headers(usage)
            is_over_limit = not usage.passed
        seconds = time.perf_counter() - began
        self._metrics.count_request(method, PING_PATH, "200", seconds)
        if not is_over_limit:
            log_request(request_id, method, PING_PATH, 200, seconds)
        start_response("200 OK", headers)
        # Not an empty list, which would be no answer.
        return [b"" if method == "HEAD" else BODY]

    def _answers(self, environ: Mapping[str, Any]) -> bool:
        if environ["REQUEST_METHOD"] not in ("GET", "HEAD") or tracing.active is not None:
            return False
        if not _OTHER_WORK.isdisjoint(environ):
            return False
        # An encoded slash is part of a name, and so belongs to another path.
        return "%" not in str(environ.get("RAW_URI") or environ.get("REQUEST_URI") or "")
