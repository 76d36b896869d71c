"""Spans of OpenTelemetry: requests, their statements, and jobs, none of them with a value.

Imported only where traces are configured: the library is an extra.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple

from opentelemetry import context, propagate, trace
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.propagators.textmap import Getter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.trace import Span, SpanKind, StatusCode

from cms.distribution import installed_version
from cms.metrics.families import OTHER_METHOD

_OTHER_METHOD = "_OTHER"
"""OpenTelemetry's word for methods that do not exist."""


class _OpenRequestSpan(NamedTuple):
    """A span, and what ends its being that of the thread."""

    span: Span
    token: Any

    def end(self, *, method: str, route: str, status: int) -> None:
        if self.span.is_recording():
            self.span.update_name(f"{method} {route}")
            known_method = _OTHER_METHOD if method == OTHER_METHOD else method
            self.span.set_attribute("http.request.method", known_method)
            self.span.set_attribute("http.route", route)
            self.span.set_attribute("http.response.status_code", status)
            # Refusals are no faults of the service.
            if status >= 500:
                self.span.set_attribute("error.type", str(status))
                self.span.set_status(StatusCode.ERROR)
        self.span.end()
        context.detach(self.token)


class _Headers(Getter[Mapping[str, Any]]):
    """Reads the headers of a WSGI environment."""

    def get(self, carrier: Mapping[str, Any], key: str) -> list[str] | None:
        value = carrier.get(f"HTTP_{key.upper().replace('-', '_')}")
        return None if value is None else [value]

    def keys(self, carrier: Mapping[str, Any]) -> list[str]:
        names = []
        for name in carrier:
            if name.startswith("HTTP_"):
                names.append(name.removeprefix("HTTP_").lower().replace("_", "-"))
        return names


_HEADERS = _Headers()


def spans_of_environment(environ: Mapping[str, str]) -> Spans:
    """Return spans that go where the variables say.

    A provider that the surrounding program has set is used as it is.
    """
    provider = trace.get_tracer_provider()
    if isinstance(provider, TracerProvider):
        return Spans(provider)
    attributes = {"service.version": installed_version()}
    # What is given here would replace the variables.
    named = "OTEL_SERVICE_NAME" in environ
    if not named and "service.name" not in environ.get("OTEL_RESOURCE_ATTRIBUTES", ""):
        attributes["service.name"] = "cms"
    provider = TracerProvider(resource=Resource.create(attributes))
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    return Spans(provider)


class Spans:
    """Makes the spans of this process (`cms.tracing.Tracing`)."""

    def __init__(self, provider: TracerProvider) -> None:
        self._provider = provider
        self._tracer = provider.get_tracer("cms", installed_version())

    def begin_request(self, environ: Mapping[str, Any]) -> _OpenRequestSpan:
        # An empty context: what an earlier request may have left in the thread is not its parent.
        parent = propagate.extract(environ, context.Context(), _HEADERS)
        span = self._tracer.start_span("HTTP", parent, SpanKind.SERVER)
        return _OpenRequestSpan(span, context.attach(trace.set_span_in_context(span, parent)))

    def add_statement(self, name: str, *, seconds: float, error: BaseException | None) -> None:
        # Without a request or a job around it, every look at the queue would be a trace.
        if not trace.get_current_span().is_recording():
            return
        ended = time.time_ns()
        span = self._tracer.start_span(
            name,
            kind=SpanKind.CLIENT,
            start_time=ended - int(seconds * 1e9),
            attributes={"db.system.name": "postgresql", "db.query.summary": name},
        )
        if error is not None:
            _set_error(span, error)
        span.end(ended)

    @contextmanager
    def job(self, task: str, *, number: int, attempt: int) -> Iterator[Span]:
        with self._tracer.start_as_current_span(
            f"job {task}",
            context.Context(),
            SpanKind.CONSUMER,
            attributes={"cms.job.task": task, "cms.job.id": number, "cms.job.attempt": attempt},
            record_exception=False,
            set_status_on_exception=False,
        ) as span:
            try:
                yield span
            except BaseException as error:
                _set_error(span, error)
                raise

    def close(self) -> None:
        self._provider.shutdown()


def _set_error(span: Span, error: BaseException) -> None:
    """Mark a span by the type of an error: its text may hold values."""
    span.set_attribute("error.type", type(error).__name__)
    span.set_status(StatusCode.ERROR)
