"""Flows that a call runs: webhooks, and flows that users start by hand."""

from __future__ import annotations

import time
from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, cast

from cachebox import LRUCache

from cms.caches import bounded_cache
from cms.errors import Problem, Refused, forbidden, invalid_payload, not_found
from cms.flows.definition.templates import RenderedTooLarge
from cms.flows.execution import Cause, refusal_of, run_now
from cms.flows.program import Program, program_of
from cms.flows.queued_runs import queue_runs
from cms.flows.run import RunContext, RunLimits, Services
from cms.items.read.answers import json_body
from cms.items.read.prepare import ReadRequest
from cms.items.read.reads import fetch_item, fetch_items, keyed, parse_key
from cms.jsontext import TooDeep
from cms.schema.keys import filter_of_keys
from cms.schema.system import FLOWS, is_system
from cms.store.context import RequestContext
from cms.store.idempotency import (
    Idempotency,
    StoredAnswer,
    claim_key,
    release_key,
    store_answer,
)
from cms.store.identity import Identity
from cms.store.snapshot import Snapshot

MAX_CACHED_BYTES = 2**24
"""The bytes that all cached answers of one process may take, with the requests for them."""
MAX_CACHED_ANSWER = 2**20
"""Bytes of an answer that is kept."""
CLAIM_MARGIN_SECONDS = 60.0
"""How long the last operation of a run may take after its time is over."""
PENDING_SECONDS = 0.05
"""How often a call looks for the answer of the same call that is under way."""
MAX_KEYS = 10_000
"""Items that one call may name for a flow that users start by hand."""


class FlowRequest(NamedTuple):
    """A request to run a flow; names of headers are in small letters."""

    path: str
    method: str
    headers: Mapping[str, str]
    query_string: str
    query: Mapping[str, object]
    body: object
    idempotency: Idempotency | None = None

    @property
    def data(self) -> dict[str, object]:
        """What templates see as `$trigger`: the request, and beside it the keys of its body."""
        request: dict[str, object] = {
            "path": self.path,
            "method": self.method,
            "headers": dict(self.headers),
            "query": dict(self.query),
            "body": self.body,
        }
        # `{{$trigger.title}}` is short for `{{$trigger.body.title}}`; the names of the request
        # itself win.
        if isinstance(self.body, Mapping):
            return {**self.body, **request}
        return request


class _CallableFlow(NamedTuple):
    """A flow that may be run, the cause of its run, and the snapshot that both were found in."""

    program: Program
    cause: Cause
    snapshot: Snapshot


class _CachedAnswer(NamedTuple):
    """An answer that is kept until a time of the monotonic clock, in seconds."""

    body: bytes
    until: float


@dataclass(frozen=True, slots=True)
class FlowCalls:
    """Runs flows for callers, with the answers that one process keeps."""

    services: Services
    _answers: LRUCache[Hashable, _CachedAnswer] = field(
        default_factory=lambda: bounded_cache(MAX_CACHED_BYTES)
    )

    def trigger(self, identity: Identity, key: str, request: FlowRequest) -> bytes | None:
        """Run a webhook flow, or one that users start by hand; None is an answer without a body.

        Raises `Refused`: FORBIDDEN without any right on flows, NOT_FOUND for a flow that is hidden
        or that no call runs, METHOD_NOT_ALLOWED, INVALID_PAYLOAD for values that are nested too
        deeply or a return that is too large, and what a rejected flow answers.

        With `request.idempotency` a call that was answered before gets the same answer.
        """
        try:
            stored = self.services.store.stored_answer(identity, request.idempotency)
            if stored and not stored.is_pending:
                return cast(bytes | None, stored.answer)
            return self._trigger(identity, key, request)
        except TooDeep:
            reason = "what is sent, or what the flow returns, is nested too deeply"
            raise invalid_payload(reason) from None
        except RenderedTooLarge:
            raise invalid_payload("what the flow returns is too large") from None

    def _trigger(self, identity: Identity, key: str, request: FlowRequest) -> bytes | None:
        # The flow runs after the read that finds it: a run may last longer than a snapshot is used.
        for attempt in self.services.store.reads(identity):
            with attempt as context:
                flow = self._find(context, identity, key, request)
        options = flow.program.definition.options
        if options.get("async"):
            self._queue(identity, flow, request.idempotency)
            return None
        if request.idempotency is not None:
            return self._run_once(identity, flow, request.idempotency)
        # Only requests without a body are cached: otherwise the key would have to hold the body.
        if not (options.get("cacheEnabled") and request.method == "GET"):
            return self._run(identity, flow)
        return self._cached_answer(identity, flow, request)

    def _cached_answer(
        self, identity: Identity, flow: _CallableFlow, request: FlowRequest
    ) -> bytes:
        key = _cache_key(identity, flow, request)
        cached = self._answers.get(key)
        if cached and cached.until > time.monotonic():
            return cached.body
        body = self._run(identity, flow)
        # One large answer would push all others out.
        if len(body) <= MAX_CACHED_ANSWER:
            until = time.monotonic() + self.services.config.cache_ttl.total_seconds()
            self._answers[key] = _CachedAnswer(body, until)
        return body

    def _queue(
        self, identity: Identity, flow: _CallableFlow, idempotency: Idempotency | None
    ) -> None:
        # The caller gets 204 at once; a worker runs the flow under the caller's rights of that
        # moment.
        store = self.services.store
        if idempotency is None:
            queue_runs(store.database.fetch_primary, flow.program.flow, [flow.cause])
            return
        for attempt in store.write(identity, idempotency=idempotency):
            with attempt:
                transaction = attempt.begin_transaction()
                queue_runs(transaction.execute, flow.program.flow, [flow.cause])

    def _run_once(
        self, identity: Identity, flow: _CallableFlow, idempotency: Idempotency
    ) -> bytes | None:
        """Run a flow whose operations are transactions of their own, or return its answer."""
        stored = self._claim(identity, idempotency)
        if stored:
            return cast(bytes | None, stored.answer)
        fetch = self.services.store.database.fetch_primary
        try:
            body = self._run(identity, flow)
        except Exception:
            release_key(fetch, identity.name, idempotency)
            raise
        store_answer(fetch, identity.name, idempotency, body)
        return body

    def _claim(self, identity: Identity, idempotency: Idempotency) -> StoredAnswer | None:
        """Claim the key of a call; return the answer of the same call, once it has ended."""
        # Longer than a run lasts: only the claim of a process that was killed ends by itself.
        seconds = self.services.config.flows_sync_timeout.total_seconds() + CLAIM_MARGIN_SECONDS
        fetch = self.services.store.database.fetch_primary
        while True:
            stored = claim_key(fetch, identity.name, idempotency, seconds)
            if not (stored and stored.is_pending):
                return stored
            time.sleep(PENDING_SECONDS)

    def _run(self, identity: Identity, flow: _CallableFlow) -> bytes:
        limits = RunLimits.for_caller(self.services.config.flows_sync_timeout)
        context = RunContext(flow.snapshot, limits)
        execution = run_now(
            self.services, flow.program, flow.cause, context=context, identity=identity
        )
        if execution.outcome.rejected:
            raise refusal_of(execution)
        return json_body({"data": execution.result}, self.services.store.max_answer_size)

    def _find(
        self, context: RequestContext, identity: Identity, key: str, request: FlowRequest
    ) -> _CallableFlow:
        # This read compares the counters, so that the program in the snapshot is the current one.
        # A caller that may not read the flow gets the same refusal as for a flow that does not
        # exist.
        item = fetch_item(self.services.store, context, ReadRequest(FLOWS, "fields=id"), key=key)
        flow = str(item["id"])
        program = program_of(self.services, context.snapshot, flow, context.fetch)
        if program is None or not program.definition.is_active:
            raise not_found()
        trigger = program.definition.trigger
        # Flows with other triggers have no address: they are refused like flows that do not exist.
        if trigger not in ("webhook", "manual"):
            raise not_found()
        _require_method(program, request.method)
        if trigger == "manual":
            self._check_selection(context, program, request)
        actor = context.actor
        accountability = {"user": actor.user, "role": actor.role, "ip": identity.client.ip}
        cause = Cause(trigger, request.data, accountability)
        return _CallableFlow(program, cause, context.snapshot)

    def _check_selection(
        self, context: RequestContext, program: Program, call: FlowRequest
    ) -> None:
        """Check the items that a call names; raises `Refused` for items the caller may not read."""
        body = call.body if isinstance(call.body, Mapping) else {}
        options = program.definition.options
        collection = body.get("collection")
        keys = body.get("keys") or []
        if not isinstance(collection, str) or is_system(collection):
            raise invalid_payload('"collection" must be the name of a collection')
        # No list offers the flow for every collection.
        offered = options.get("collections")
        if isinstance(offered, list) and offered and collection not in offered:
            raise forbidden()
        if not isinstance(keys, list) or len(keys) > MAX_KEYS:
            raise invalid_payload(f'"keys" must be an array of {MAX_KEYS} keys at most')
        key_field = keyed(context, collection)
        if not keys:
            if options.get("requireSelection", True):
                raise invalid_payload('"keys" must name at least one item')
            return
        named = {parse_key(key_field, key) for key in keys}
        store = self.services.store
        # A read returns no more than a page.
        size = store.page.maximum or len(named)
        keys = sorted(named)
        fields = ",".join(key_field.key_names)
        for start in range(0, len(keys), size):
            page = keys[start : start + size]
            params = {"fields": fields, "filter": filter_of_keys(key_field, page), "limit": -1}
            request = ReadRequest(collection, params=params)
            # Hidden and missing items alike are missing in the answer, and are refused alike.
            if len(fetch_items(store, context, request)) < len(page):
                raise not_found()


def _cache_key(
    identity: Identity, flow: _CallableFlow, request: FlowRequest
) -> tuple[Hashable, ...]:
    """Return everything that an answer depends on, except the items that the flow reads."""
    key = (
        flow.program.flow,
        flow.snapshot.version,
        identity.caller,
        request.path,
        request.query_string,
    )
    if not flow.program.sees_client:
        return key
    # Only for programs that look at the client: headers differ with nearly every caller.
    return (*key, identity.client.ip, *sorted(request.headers.items()))


def _require_method(program: Program, method: str) -> None:
    allowed = "POST"
    if program.definition.trigger == "webhook":
        allowed = str(program.definition.options.get("method") or "GET").upper()
    if method != allowed:
        message = f"The method {method} is not allowed here; there is {allowed}."
        raise Refused(Problem("METHOD_NOT_ALLOWED", message, {"allowed": [allowed]}))
