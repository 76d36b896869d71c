"""/server/health, and /metrics for Prometheus (docs/monitoring.md)."""

from __future__ import annotations

import hmac
from collections.abc import Iterator
from functools import partial

import falcon

from cms.caches import CachedValue
from cms.config import Config
from cms.database.error_mapping import Stale
from cms.errors import Refused, forbidden
from cms.health.checks import ERROR
from cms.health.health import Health, public_health
from cms.http.answers.envelope import send
from cms.http.answers.error_handlers import RETRY_AFTER_SECONDS
from cms.http.requests.request import Request, is_administrator
from cms.jobs.housekeeping import queue_depth
from cms.metrics.exposition import CONTENT_TYPE, Gauge, exposition
from cms.store.store import Store

QUEUE_CACHE_SECONDS = 5.0
QUEUE_WAIT_SECONDS = 1.0
"""How long an answer waits for the state of the queue, which it then leaves out."""


class HealthResource:
    def __init__(self, store: Store, health: Health) -> None:
        self._store = store
        self._health = health

    def on_get(self, request: Request, response: falcon.Response) -> None:
        """Answer 200 when requests can be served, else 503 with the reason.

        Administrators see each part of a service that answers.
        """
        state = self._health.database()
        if state["status"] == ERROR:
            # Without a database nobody is recognised as an administrator, and trying would take as
            # long again.
            response.status = falcon.HTTP_503
            response.set_header("Retry-After", RETRY_AFTER_SECONDS)
            send(response, public_health(state))
        elif is_administrator(self._store, request):
            send(response, self._health.all_parts(state))
        else:
            send(response, public_health(state))


class MetricsResource:
    def __init__(self, store: Store, config: Config) -> None:
        self._store = store
        self._token = (config.metrics_token or "").encode()
        self._queue = CachedValue(partial(queue_depth, store.database), seconds=QUEUE_CACHE_SECONDS)

    def on_get(self, request: Request, response: falcon.Response) -> None:
        """Answer the metrics of all processes of this machine, without unknown ones."""
        if not self._has_token(request):
            self._require_admin(request)
        response.content_type = CONTENT_TYPE
        response.data = exposition(self._store.database.metrics, self._queue_gauges())

    def _has_token(self, request: Request) -> bool:
        kind, _, token = (request.auth or "").partition(" ")
        # It takes the same time for every wrong token of a length, so that none can be guessed by
        # parts.
        is_equal = hmac.compare_digest(token.strip().encode(), self._token)
        return kind.lower() == "bearer" and bool(self._token) and is_equal

    def _require_admin(self, request: Request) -> None:
        try:
            identity = request.identity
            if identity.is_anonymous:
                raise forbidden()
            self._store.require_administrator(identity)
        except Refused as refused:
            # A scraper with a wrong token gets no hint that users have tokens as well.
            if refused.status == 401:
                raise forbidden() from None
            raise

    def _queue_gauges(self) -> Iterator[Gauge]:
        try:
            queue = self._queue.get(max_seconds=QUEUE_WAIT_SECONDS)
        except (Refused, Stale, TimeoutError):
            return  # the database does not answer
        yield Gauge("cms_queue_jobs", "Jobs that could run now.", float(queue.jobs))
        yield Gauge(
            "cms_queue_oldest_job_seconds",
            "Time since the first of these jobs could run.",
            queue.oldest_seconds,
        )
