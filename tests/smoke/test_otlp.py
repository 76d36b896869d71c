"""Traces of a whole service, as a collector gets them: by OpenTelemetry's exporter and messages."""

from __future__ import annotations

import gzip
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
import requests
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from tests.smoke.calls import run_a_flow, url
from tests.smoke.running import TIMEOUT_SECONDS, new_folder, serving
from tests.waiting import eventually

pytestmark = pytest.mark.slow


@dataclass
class Collector:
    """What has been sent to `/v1/traces`."""

    url: str = ""
    spans: list[Any] = field(default_factory=list)
    services: set[str] = field(default_factory=set)

    def receive(self, body: bytes) -> None:
        message = ExportTraceServiceRequest.FromString(body)
        for resource in message.resource_spans:
            for attribute in resource.resource.attributes:
                if attribute.key == "service.name":
                    self.services.add(attribute.value.string_value)
            for scope in resource.scope_spans:
                self.spans.extend(scope.spans)

    def await_span(self, name: str) -> Any:
        return eventually(
            lambda: [span for span in self.spans if span.name == name],
            otherwise=lambda: {span.name for span in self.spans},
        )[0]


@contextmanager
def collecting() -> Iterator[Collector]:
    collector = Collector()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            if self.headers.get("Content-Encoding") == "gzip":
                body = gzip.decompress(body)
            assert self.headers["Content-Type"] == "application/x-protobuf"
            if self.path == "/v1/traces":
                collector.receive(body)
            self.send_response(200)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *args: object) -> None:
            """Write no line for each request."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    collector.url = f"http://127.0.0.1:{server.server_port}"
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield collector
    finally:
        server.shutdown()
        server.server_close()


def test_requests_statements_and_jobs_reach_a_collector() -> None:
    with collecting() as collector, new_folder() as folder:
        settings = {
            "WEB_CONCURRENCY": "2",
            "ADMIN_PASSWORD": "a password",
            "LOG_LEVEL": "warn",
            "OTEL_EXPORTER_OTLP_ENDPOINT": collector.url,
            "OTEL_SERVICE_NAME": "our-cms",
            "OTEL_BSP_SCHEDULE_DELAY": "100",
        }
        with serving(folder, **settings) as service:
            run_a_flow(service)
            request = collector.await_span("GET /flows/trigger/{key}")
            await_child(collector, request)
            job = collector.await_span("job flow")
            await_child(collector, job)
            # The last ones are sent when the processes end.
            assert requests.get(url(service, "/server/info"), timeout=TIMEOUT_SECONDS).ok
            service.process.terminate()
            assert service.wait_for_exit() == 0
            collector.await_span("GET /server/info")
        assert collector.services == {"our-cms"}


@pytest.mark.clock
def test_a_collector_that_is_away_hinders_nothing() -> None:
    with new_folder() as folder:
        endpoint = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:9"}
        with serving(folder, LOG_LEVEL="warn", **endpoint) as service:
            for _ in range(20):
                began = time.monotonic()
                assert requests.get(url(service, "/server/ping"), timeout=TIMEOUT_SECONDS).ok
                assert time.monotonic() - began < 2
            began = time.monotonic()
            service.process.terminate()
            assert service.wait_for_exit() == 0
            assert time.monotonic() - began < 20


def await_child(collector: Collector, parent: Any) -> None:
    eventually(
        lambda: any(span.parent_span_id == parent.span_id for span in collector.spans),
        otherwise=lambda: collector.spans,
    )
