"""Spans of requests, statements and jobs, as OpenTelemetry's own exporter gets them."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

from cms.database import connections
from cms.database.connections import Database
from cms.database.statement_meter import statement_name
from cms.database.statements import statement
from cms.jobs.task import Job, JobError, Task
from cms.spans import Spans
from cms.tracing import process, start_tracing
from tests.client import Client
from tests.queues import QueueDatabase

SECRET = "a-value-that-no-span-may-hold"


@pytest.fixture
def spans(monkeypatch: pytest.MonkeyPatch) -> Iterator[InMemorySpanExporter]:
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr(process, "active", Spans(provider))
    yield exporter
    provider.shutdown()


def attributes(span: ReadableSpan) -> dict[str, Any]:
    return dict(span.attributes or {})


def seconds_of(span: ReadableSpan) -> float:
    return ((span.end_time or 0) - (span.start_time or 0)) / 1e9


def requests_of(spans: InMemorySpanExporter) -> Sequence[ReadableSpan]:
    return [span for span in spans.get_finished_spans() if span.kind == SpanKind.SERVER]


def statements_of(spans: InMemorySpanExporter) -> Sequence[ReadableSpan]:
    return [span for span in spans.get_finished_spans() if span.kind == SpanKind.CLIENT]


def test_a_request_is_a_span_with_its_statements_in_it(
    api: Client, spans: InMemorySpanExporter
) -> None:
    api.post("/collections", {"collection": "books", "schema": {}})
    spans.clear()
    assert api.get("/items/books", limit=3).status == 200
    (request,) = requests_of(spans)
    assert request.name == "GET /items/{collection}"
    assert attributes(request) == {
        "http.request.method": "GET",
        "http.route": "/items/{collection}",
        "http.response.status_code": 200,
    }
    assert request.status.status_code == StatusCode.UNSET
    assert request.parent is None
    statements = statements_of(spans)
    assert "SELECT books" in {span.name for span in statements}
    for span in statements:
        assert span.parent
        assert span.parent.span_id == request.context.span_id
        assert attributes(span)["db.system.name"] == "postgresql"
        assert 0 < seconds_of(span) < seconds_of(request)


@pytest.mark.release
def test_no_span_holds_a_value(api: Client, spans: InMemorySpanExporter) -> None:
    fields = [{"field": "title", "type": "string"}]
    api.post("/collections", {"collection": "books", "schema": {}, "fields": fields})
    api.post("/items/books", {"title": SECRET})
    api.get(f"/items/books?filter[title][_eq]={SECRET}&search={SECRET}")
    api.get(f"/items/books/{SECRET}")
    api.get(f"/{SECRET}")
    api.patch(f"/items/books?filter[title][_eq]={SECRET}", {"title": SECRET * 2})
    api.post("/auth/login", {"email": f"{SECRET}@example.com", "password": SECRET})
    assert len(requests_of(spans)) == 7
    assert {"INSERT books", "SELECT books"} <= {span.name for span in statements_of(spans)}
    assert SECRET not in "".join(span.to_json() for span in spans.get_finished_spans())


def test_a_trace_goes_on_where_the_caller_began_it(
    anonymous: Client, spans: InMemorySpanExporter
) -> None:
    trace_id = "0af7651916cd43dd8448eb211c80319c"
    parent = f"00-{trace_id}-b7ad6b7169203331-01"
    anonymous.send("GET", "/server/ping", traceparent=parent)
    anonymous.send("GET", "/server/ping", traceparent="nonsense")
    anonymous.get("/server/ping")
    first, second, third = requests_of(spans)
    assert first.context.trace_id == int(trace_id, 16)
    assert first.parent
    assert first.parent.span_id == 0xB7AD6B7169203331
    assert second.parent is third.parent is None
    assert len({span.context.trace_id for span in (first, second, third)}) == 3


def test_unknown_routes_and_methods_make_no_names_of_their_own(
    anonymous: Client, spans: InMemorySpanExporter
) -> None:
    anonymous.get("/nothing/of/this")
    anonymous.send("METHOD7", "/server/ping")
    names = [(span.name, attributes(span)["http.request.method"]) for span in requests_of(spans)]
    assert names == [("GET none", "GET"), ("other /server/ping", "_OTHER")]


def test_only_faults_of_the_service_are_errors(
    api: Client,
    make_client: Callable[..., Client],
    spans: InMemorySpanExporter,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(connections, "_BORROW_SECONDS", 0.2)
    api.get("/items/nothing")
    make_client(database_url="host=127.0.0.1 dbname=" + "x" * 5 + " port=nonsense").get("/items/a")
    refused, failed = requests_of(spans)
    assert refused.status.status_code == StatusCode.UNSET
    assert failed.status.status_code == StatusCode.ERROR
    assert attributes(failed)["error.type"] == "503"


def test_a_statement_that_fails_has_the_type_of_its_error_and_no_text(
    api: Client, spans: InMemorySpanExporter
) -> None:
    fields = [{"field": "code", "type": "string", "schema": {"is_unique": True}}]
    api.post("/collections", {"collection": "books", "schema": {}, "fields": fields})
    api.post("/items/books", {"code": SECRET})
    spans.clear()
    assert api.post("/items/books", {"code": SECRET}).status == 400
    failed = [span for span in statements_of(spans) if span.status.status_code == StatusCode.ERROR]
    assert [attributes(span)["error.type"] for span in failed] == ["UniqueViolation"]
    assert SECRET not in "".join(span.to_json() for span in spans.get_finished_spans())


def test_a_job_is_a_span_with_its_statements_in_it(
    queue: QueueDatabase, spans: InMemorySpanExporter
) -> None:
    def work(job: Job) -> None:
        queue.database.fetch(statement("find_version"))
        if job.payload:
            raise JobError(SECRET)

    queue.put("work")
    queue.put("work", {"fails": True})
    queue.drain(Task("work", work))
    finished = spans.get_finished_spans()
    jobs = [span for span in finished if span.kind == SpanKind.CONSUMER]
    assert [span.name for span in jobs] == ["job work"] * 2
    by_status = {span.status.status_code: span for span in jobs}
    done = by_status[StatusCode.UNSET]
    assert attributes(done)["cms.job.task"] == "work"
    assert attributes(done)["cms.job.attempt"] == 1
    assert attributes(by_status[StatusCode.ERROR])["error.type"] == "JobError"
    parents = {span.parent.span_id for span in statements_of(spans) if span.parent}
    assert parents == {span.context.span_id for span in jobs}
    assert SECRET not in "".join(span.to_json() for span in finished)


def test_statements_of_no_request_and_no_job_are_no_traces(
    queue: QueueDatabase, spans: InMemorySpanExporter
) -> None:
    database: Database = queue.database
    database.fetch(statement("find_version"))
    assert spans.get_finished_spans() == ()


@pytest.mark.parametrize(
    ("text", "name"),
    [
        (statement("find_version"), "find_version"),
        ('SELECT v.a FROM system_version AS v, (SELECT 1 FROM "books" AS t0) AS r', "SELECT books"),
        ('WITH w AS (INSERT INTO "tenant"."a""b" VALUES ($1)) SELECT 1', "INSERT tenant.ab"),
        ('UPDATE "books" SET "a" = (SELECT 1 FROM "other")', "UPDATE books"),
        ('DELETE FROM "books" WHERE TRUE', "DELETE books"),
        ("EXPLAIN (FORMAT JSON) SELECT 1", "EXPLAIN"),
        ("analyze x", "ANALYZE"),
    ],
)
def test_names_of_statements(text: str, name: str) -> None:
    assert statement_name(text) == name


@pytest.fixture
def inactive(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "active", None)


@pytest.mark.usefixtures("inactive")
@pytest.mark.parametrize(
    "environ",
    [
        {},
        {"OTEL_SERVICE_NAME": "cms"},
        {"OTEL_TRACES_EXPORTER": "none", "OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:9"},
        {"OTEL_SDK_DISABLED": "true", "OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:9"},
    ],
)
def test_traces_are_off_unless_they_are_configured(environ: dict[str, str]) -> None:
    start_tracing(environ)
    assert process.active is None


@pytest.mark.usefixtures("inactive")
@pytest.mark.parametrize(
    "more",
    [{"OTEL_TRACES_EXPORTER": "console"}, {"OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}],
)
def test_exporters_that_are_not_there_are_reported(
    more: dict[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, "cms"):
        start_tracing({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:9", **more})
    assert process.active is None
    assert "there are no traces" in caplog.text


@pytest.mark.usefixtures("inactive")
def test_a_provider_of_the_surrounding_program_is_used(
    anonymous: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr(trace, "get_tracer_provider", lambda: provider)
    start_tracing({"OTEL_TRACES_EXPORTER": "otlp"})
    anonymous.get("/server/ping")
    assert [span.name for span in exporter.get_finished_spans()] == ["GET /server/ping"]


@pytest.mark.usefixtures("inactive")
def test_without_the_library_the_service_warns_and_runs(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.delitem(sys.modules, "cms.spans")
    monkeypatch.setitem(sys.modules, "opentelemetry", None)
    with caplog.at_level(logging.WARNING, "cms"):
        start_tracing({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:9"})
    assert process.active is None
    assert "headless-cms[otel]" in caplog.text
