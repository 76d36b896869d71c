"""/flows: calls that run flows, and the runs."""

from __future__ import annotations

import falcon

from cms.errors import not_found
from cms.flows.flow_calls import FlowCalls, FlowRequest
from cms.flows.queued_runs import retry_run
from cms.http.answers.envelope import send_written
from cms.http.items import send_list
from cms.http.requests.media import idempotency_key_of, read_json
from cms.http.requests.request import Request
from cms.http.requests.webhook_body import read_webhook_body
from cms.items.read.prepare import ReadRequest, RowTest
from cms.schema.types.texts import parse_uuid
from cms.store.store import Store


class TriggerResource:
    """Runs a flow."""

    def __init__(self, calls: FlowCalls) -> None:
        self._calls = calls

    def _trigger(self, request: Request, response: falcon.Response, key: str) -> None:
        method = request.sent_method
        # HTTP gives the body of a GET no meaning, and proxies may drop it.
        body = None if method in ("GET", "HEAD") else read_webhook_body(request)
        call = FlowRequest(
            request.path,
            method,
            _headers(request),
            request.query_string,
            request.params,
            body,
            None if method in ("GET", "HEAD") else idempotency_key_of(request),
        )
        send_written(response, self._calls.trigger(request.identity, key, call))

    on_get = on_post = on_put = on_patch = on_delete = _trigger
    on_head = _trigger
    """Refused: a flow that runs with GET must not run for a look at its headers."""


class FlowRowsResource:
    """The rows of a log that are of one flow, which need not exist any more."""

    def __init__(self, store: Store, collection: str) -> None:
        self._store = store
        self._collection = collection

    def on_get(self, request: Request, response: falcon.Response, key: str) -> None:
        try:
            flow = parse_uuid(key)
        except ValueError:
            raise not_found() from None
        only = (RowTest("flow", "_eq", flow),)
        read_request = ReadRequest(self._collection, request.query_string, only=only)
        send_list(self._store, request, response, read_request)


class RetryResource:
    """Another attempt at a run."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def on_post(self, request: Request, response: falcon.Response, key: str) -> None:
        # A key is compared with the body, too, which may be empty only.
        read_json(request)
        retry_run(self._store, request.identity, key, idempotency_key_of(request))
        response.status = falcon.HTTP_204


def _headers(request: Request) -> dict[str, str]:
    """Return the headers that a flow sees, by names in small letters.

    Those that authenticate the caller are not among them: a flow could hand them on.
    """
    headers = {name.lower(): value for name, value in request.headers.items()}
    headers.pop("cookie", None)
    # Other schemes, such as Basic of a webhook, belong to the flow: the service authenticates
    # nobody by them.
    if headers.get("authorization", "").lower().startswith("bearer "):
        del headers["authorization"]
    return headers
