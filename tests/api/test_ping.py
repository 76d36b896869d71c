"""GET /server/ping, which is answered without Falcon where nothing more is asked."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

import pytest

from cms.config import Config
from cms.http import ping
from cms.http.ping import Ping
from cms.logs import start_logging
from cms.web.event_worker import is_immediate_of
from tests.client import Answer, Client, with_other_status

PATH = "/server/ping"
OF_EACH_REQUEST = {"x-request-id", "x-ratelimit-remaining", "x-ratelimit-reset"}
"""Headers whose values differ from one request to the next."""


@pytest.fixture
def without_short_way(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Have the resource answer every ping."""
    return lambda: monkeypatch.setattr(Ping, "answer", lambda *arguments: None)


def essence(answer: Answer) -> tuple[int, bytes, dict[str, str | None]]:
    headers = {
        name: None if name in OF_EACH_REQUEST else value for name, value in answer.headers.items()
    }
    return answer.status, answer.content, headers


@pytest.mark.parametrize("method", ["GET", "HEAD"])
def test_the_short_way_answers_as_the_resource_does(
    make_client: Callable[..., Client], without_short_way: Callable[[], None], method: str
) -> None:
    anonymous = make_client(rate_limiter_enabled=True)
    short = anonymous.send(method, PATH)
    without_short_way()
    assert essence(short) == essence(anonymous.send(method, PATH))
    assert short.headers.keys() >= OF_EACH_REQUEST


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [("POST", PATH, 405), ("OPTIONS", PATH, 200), ("GET", f"{PATH}/", 200)],
)
def test_other_requests_are_answered_by_the_router(
    anonymous: Client, method: str, path: str, status: int
) -> None:
    assert anonymous.send(method, path).status == status


def test_an_id_is_taken_over_unless_it_could_forge_a_line(anonymous: Client) -> None:
    good = anonymous.send("GET", PATH, **{"X-Request-Id": "a-1"})
    assert good.headers["x-request-id"] == "a-1"
    bad = anonymous.send("GET", PATH, **{"X-Request-Id": "a b"})
    assert bad.headers["x-request-id"] != "a b"


def test_a_ping_is_counted_logged_and_never_refused(
    make_client: Callable[..., Client], monkeypatch: pytest.MonkeyPatch
) -> None:
    counted: list[tuple[str, str, str]] = []
    logged: list[tuple[object, ...]] = []
    client = make_client(rate_limiter_enabled=True, rate_limiter_per_minute=2)
    metrics = client.app.store.database.metrics
    monkeypatch.setattr(metrics, "count_request", lambda *labels: counted.append(labels[:3]))
    monkeypatch.setattr(ping, "log_request", lambda *line: logged.append(line))
    answers = [client.get(PATH) for _ in range(3)]
    assert with_other_status(answers, 200) == []
    remaining = [int(answer.headers["x-ratelimit-remaining"]) for answer in answers]
    assert remaining == [1, 0, 0]
    assert counted == [("GET", PATH, "200")] * 3
    # What exceeds a limit has no line of its own.
    assert [line[1:4] for line in logged] == [("GET", PATH, 200)] * 2
    assert logged[0][0] == answers[0].headers["x-request-id"]
    assert client.get("/server/info").status == 429


ENVIRON: dict[str, object] = {"PATH_INFO": PATH, "REQUEST_METHOD": "GET", "RAW_URI": PATH}


@pytest.mark.parametrize(
    "changed",
    [
        {"PATH_INFO": "/server/info"},
        {"REQUEST_METHOD": "POST"},
        {"CONTENT_LENGTH": "5"},
        {"HTTP_TRANSFER_ENCODING": "chunked"},
        {"HTTP_X_SERVER_TIMING": "1"},
    ],
    ids=lambda changed: next(iter(changed)),
)
def test_only_a_ping_alone_waits_for_nothing(anonymous: Client, changed: Mapping[str, str]) -> None:
    assert anonymous.app.is_immediate(ENVIRON)
    assert not anonymous.app.is_immediate({**ENVIRON, **changed})


def test_a_ping_that_is_counted_in_redis_may_have_to_wait(
    make_client: Callable[..., Client],
) -> None:
    assert make_client(rate_limiter_enabled=True).app.is_immediate(ENVIRON)
    elsewhere = make_client(rate_limiter_enabled=True, redis="redis://127.0.0.1:1/0")
    assert not elsewhere.app.is_immediate(ENVIRON)


def test_a_wrapper_that_has_the_attributes_of_the_service_may_have_to_wait(
    anonymous: Client,
) -> None:
    app = anonymous.app

    class Proxy:
        def __getattr__(self, name: str) -> Any:
            return getattr(app, name)

    assert is_immediate_of(app)(ENVIRON)
    assert not is_immediate_of(Proxy())(ENVIRON)


@pytest.fixture
def restored_loggers() -> Iterator[None]:
    """Give the loggers back what a test changes of them."""
    loggers = [logging.getLogger(name) for name in ("cms", "psycopg", "procrastinate", "asyncio")]
    before = [(logger, logger.handlers[:], logger.propagate, logger.level) for logger in loggers]
    yield
    for logger, handlers, propagate, level in before:
        logger.handlers[:] = handlers
        logger.propagate = propagate
        logger.setLevel(level)


@pytest.mark.usefixtures("restored_loggers")
def test_a_ping_may_wait_for_handlers_of_an_application_around_the_service(
    anonymous: Client, config: Config
) -> None:
    start_logging(replace(config, log_level="info"))
    assert anonymous.app.is_immediate(ENVIRON)
    logging.getLogger("cms").addHandler(logging.NullHandler())
    assert not anonymous.app.is_immediate(ENVIRON)
    logging.getLogger("cms").setLevel(logging.WARNING)
    assert anonymous.app.is_immediate(ENVIRON)
