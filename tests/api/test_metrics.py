"""/metrics: who may read it, and what it counts (docs/monitoring.md)."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import falcon
import pytest

from cms.config import Config
from cms.database import connections
from tests.active_flows import make_flow
from tests.client import Client
from tests.files.forms import FileService
from tests.files.images import picture
from tests.metrics_text import Samples, samples_of, value
from tests.queues import QueueDatabase

TOKEN = "only.for.prometheus"


@pytest.fixture
def config(config: Config, tmp_path: Path) -> Config:
    return replace(config, data_dir=tmp_path, metrics_token=TOKEN)


@pytest.fixture
def scraper(anonymous: Client) -> Client:
    return anonymous.bearing(TOKEN)


def scraped(client: Client) -> Samples:
    answer = client.get("/metrics")
    assert answer.status == 200
    assert answer.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    return samples_of(answer.text)


def test_the_token_and_administrators_read_it(scraper: Client, api: Client) -> None:
    assert scraped(scraper).keys() >= {("cms_statements_total", frozenset())}
    assert scraped(api)
    lower = scraper.send("GET", "/metrics", Authorization=f"bearer {TOKEN}")
    assert lower.status == 200


def test_all_others_are_forbidden(anonymous: Client, api: Client) -> None:
    role = api.post("/roles", {"name": "Editors"}).data["id"]
    api.post("/users", {"email": "e@example.com", "password": "a password", "role": role})
    user = anonymous.login("e@example.com", "a password")
    others = {"nobody": anonymous, "a user": user}
    for token in ("x", TOKEN[:-1], f"{TOKEN}x", "a.b.c", "é"):
        others[token] = anonymous.bearing(token)
    for name, client in others.items():
        answer = client.get("/metrics")
        assert (answer.status, answer.codes) == (403, ["FORBIDDEN"]), name
    assert anonymous.send("GET", "/metrics", Authorization=f"Basic {TOKEN}").status == 403


def test_without_a_token_of_the_settings_no_token_is_good(
    make_client: Callable[..., Client],
) -> None:
    client = make_client(metrics_token=None)
    assert client.get("/metrics").status == 403
    assert client.send("GET", "/metrics", Authorization="Bearer ").status == 403


def test_requests_are_counted_by_the_template_of_their_route(
    scraper: Client, api: Client, anonymous: Client
) -> None:
    api.post("/collections", {"collection": "books", "schema": {}})
    for number in range(3):
        api.get("/items/books", limit=number + 1)
    missing = api.get("/items/books/1").status
    anonymous.get("/items/books")
    samples = scraped(scraper)
    items = {"method": "GET", "route": "/items/{collection}"}
    assert value(samples, "cms_requests_total", **items, status="200") == 3
    assert value(samples, "cms_requests_total", **items, status="403") == 1
    one = {"method": "GET", "route": "/items/{collection}/{key}"}
    assert value(samples, "cms_requests_total", **one, status=str(missing)) == 1
    assert value(samples, "cms_request_duration_seconds_count", **items) == 4
    assert 0 < value(samples, "cms_request_duration_seconds_sum", **items) < 60
    assert value(samples, "cms_statements_total") > 5


def test_clients_cannot_make_up_labels(scraper: Client, anonymous: Client) -> None:
    for number in range(20):
        anonymous.get(f"/nothing/{number}")
        anonymous.send(f"METHOD{number}", "/server/ping")
        anonymous.send("SEARCH", f"/items/a{number}", {"query": {}})
    samples = scraped(scraper)
    requests = [dict(labels) for name, labels in samples if name == "cms_requests_total"]
    assert len(requests) == 3
    unknown = {"method": "GET", "route": "none", "status": "404"}
    assert value(samples, "cms_requests_total", **unknown) == 20
    made_up = {"method": "other", "route": "/server/ping", "status": "405"}
    assert value(samples, "cms_requests_total", **made_up) == 20
    search = {"method": "SEARCH", "route": "/items/{collection}", "status": "403"}
    assert value(samples, "cms_requests_total", **search) == 20


@pytest.mark.release
def test_clients_cannot_use_up_the_room_for_series(scraper: Client, anonymous: Client) -> None:
    """By asking each route with every method that Falcon knows."""
    app = anonymous.app
    for route in sorted(app.templates()):
        for method in falcon.COMBINED_METHODS:
            anonymous.send(method, re.sub(r"{\w+}", "1", route))
    samples = scraped(scraper)
    requests = [dict(labels) for name, labels in samples if name == "cms_requests_total"]
    assert {labels["route"] for labels in requests} >= app.templates() - {"/metrics"}
    assert app.store.database.metrics.open().room > 0.5
    assert all(labels["method"] == "other" for labels in requests if labels["status"] == "405")


@pytest.mark.release
def test_the_plan_cache_has_hits_and_misses(scraper: Client, api: Client) -> None:
    api.post("/collections", {"collection": "books", "schema": {}})
    api.post("/items/books", {})
    before = scraped(scraper)
    for number in range(4):
        api.get(f"/items/books?filter[id][_eq]={number}")
    after = scraped(scraper)

    def rise(name: str) -> float:
        return value(after, name) - value(before, name)

    assert rise("cms_plan_cache_misses_total") == 1
    assert rise("cms_plan_cache_hits_total") == 3
    assert rise("cms_pool_wait_seconds_count") >= 4
    assert rise("cms_statements_total") >= 4


def test_runs_of_flows_are_counted(scraper: Client, api: Client) -> None:
    flow = make_flow(api, "webhook", {"method": "GET"}, [])
    assert api.get(f"/flows/trigger/{flow}").status == 200
    assert value(scraped(scraper), "cms_flow_runs_total") == 1


@pytest.mark.release
def test_a_transform_is_counted_when_it_is_made(files: FileService) -> None:
    key = files.add(picture(), "a.jpg")["id"]
    before = value(scraped(files.stage.admin), "cms_transforms_total")
    for _ in range(2):
        assert files.stage.admin.get(f"/assets/{key}", width=5).status == 200
    assert value(scraped(files.stage.admin), "cms_transforms_total") - before == 1


@pytest.mark.release
def test_the_queue_has_its_depth_and_age(
    queue: QueueDatabase, make_client: Callable[..., Client]
) -> None:
    queue.put("mail")
    queue.put("mail")
    queue.put("flow")
    queue.execute(
        "UPDATE procrastinate_events SET at = at - interval '1 hour';"
        "UPDATE procrastinate_jobs SET scheduled_at = now() + interval '1 hour'"
        " WHERE task_name = 'flow'"
    )
    client = make_client(database_url=queue.dsn).bearing(TOKEN)
    samples = scraped(client)
    assert value(samples, "cms_queue_jobs") == 2
    assert 3600 <= value(samples, "cms_queue_oldest_job_seconds") < 3700


@pytest.mark.clock
def test_without_a_database_the_rest_is_answered_soon(
    make_client: Callable[..., Client], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "_BORROW_SECONDS", 30.0)
    client = make_client(database_url="host=127.0.0.1 port=9 dbname=nowhere").bearing(TOKEN)
    began = time.monotonic()
    samples = scraped(client)
    assert time.monotonic() - began < 5
    assert ("cms_statements_total", frozenset()) in samples
    assert ("cms_process_memory_bytes", frozenset()) in samples
    assert not {"cms_queue_jobs", "cms_queue_oldest_job_seconds"} & {name for name, _ in samples}
