"""Traces, where OpenTelemetry is installed and configured; all others pay for one test.

Configured by the standard variables of the environment, `OTEL_…` (docs/monitoring.md).
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Protocol

from cms.distribution import install_command

log = logging.getLogger("cms")


class RequestSpan(Protocol):
    """The span of a request, which its thread has begun."""

    def end(self, *, method: str, route: str, status: int) -> None:
        """End it in the same thread; `route` is the template of the path."""


class Tracing(Protocol):
    """Makes spans."""

    def begin_request(self, environ: Mapping[str, Any]) -> RequestSpan:
        """Begin the span of a request in this thread, in the trace that its `traceparent` names."""

    def add_statement(self, name: str, *, seconds: float, error: BaseException | None) -> None:
        """Add a statement that has just ended to the span of this thread, if there is one."""

    def job(self, task: str, *, number: int, attempt: int) -> AbstractContextManager[object]:
        """Return a context that makes a span of a job."""

    def close(self) -> None:
        """Send what is left."""


class _Process:
    """The traces of this process."""

    active: Tracing | None = None


process = _Process()


def start_tracing(environ: Mapping[str, str]) -> None:
    """Start traces, if the variables say so, in a process that has forked already."""
    if not _is_configured(environ):
        return
    if _wants_other_exporter(environ):
        log.warning("there are no traces: OTEL_… names an exporter other than OTLP over HTTP")
        return
    try:
        from cms.spans import spans_of_environment
    except ModuleNotFoundError:
        log.warning(
            "OTEL_… is set, but there are no traces: they need `%s`", install_command("otel")
        )
        return
    process.active = spans_of_environment(environ)


def stop_tracing() -> None:
    """Send what is left and make no more spans."""
    active = process.active
    process.active = None
    if active is not None:
        active.close()


def job_span(task: str, *, number: int, attempt: int) -> AbstractContextManager[object]:
    """Return the span of a job, or a context that does nothing."""
    if process.active is None:
        return nullcontext()
    return process.active.job(task, number=number, attempt=attempt)


def _is_configured(environ: Mapping[str, str]) -> bool:
    if environ.get("OTEL_SDK_DISABLED", "").lower() == "true":
        return False
    exporter = environ.get("OTEL_TRACES_EXPORTER")
    if exporter:
        return exporter != "none"
    # Without an address the exporter would try the port of a collector on this machine for ever.
    names = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")
    return any(environ.get(name) for name in names)


def _wants_other_exporter(environ: Mapping[str, str]) -> bool:
    if environ.get("OTEL_TRACES_EXPORTER", "otlp") not in ("", "otlp"):
        return True
    names = ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")
    return any(environ.get(name, "http/protobuf") not in ("", "http/protobuf") for name in names)
