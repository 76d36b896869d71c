"""/metrics over all processes of a service: web workers, killed ones, the job worker."""

from __future__ import annotations

from collections.abc import Callable

import psutil
import pytest
import requests

from tests.metrics_text import Samples, samples_of, value
from tests.smoke.calls import run_a_flow, url
from tests.smoke.running import TIMEOUT_SECONDS, Service, new_folder, serving
from tests.waiting import eventually

pytestmark = pytest.mark.slow

TOKEN = "a token for Prometheus"
PING = {"method": "GET", "route": "/server/ping"}


def test_the_counters_of_all_processes_are_added_up_and_never_fall() -> None:
    settings = {
        "WEB_CONCURRENCY": "3",
        "METRICS_TOKEN": TOKEN,
        "ADMIN_PASSWORD": "a password",
        "LOG_LEVEL": "warn",
    }
    with new_folder() as folder:
        with serving(folder, **settings) as service:
            ping(service, 120)
            assert pings(scraped(service)) == 120
            for _ in range(2):
                replace_a_worker(service)
                assert pings(scraped(service)) == 120
            ping(service, 30)
            assert pings(scraped(service)) == 150
            # Three web workers and the job worker, of some 60 MB each.
            await_value(service, "cms_process_memory_bytes", lambda size: size > 120e6)
            run_a_flow(service)
            await_value(service, "cms_flow_runs_total", lambda runs: runs == 1)
            service.process.terminate()
            assert service.wait_for_exit() == 0
        files = list((folder / "data" / "metrics").glob("*.names"))
        with serving(folder, **settings) as service:
            samples = scraped(service)
            assert pings(samples) == 150
            assert value(samples, "cms_flow_runs_total") == 1
        assert len(list((folder / "data" / "metrics").glob("*.names"))) <= max(len(files), 4)


def ping(service: Service, times: int) -> None:
    for _ in range(times):
        # On a connection of its own each, so that every worker gets some.
        assert requests.get(url(service, "/server/ping"), timeout=TIMEOUT_SECONDS).text == "pong"


def scraped(service: Service) -> Samples:
    headers = {"Authorization": f"Bearer {TOKEN}"}
    answer = requests.get(url(service, "/metrics"), headers=headers, timeout=TIMEOUT_SECONDS)
    assert answer.status_code == 200
    return samples_of(answer.text)


def pings(samples: Samples) -> float:
    count = value(samples, "cms_requests_total", **PING, status="200")
    assert value(samples, "cms_request_duration_seconds_count", **PING) == count
    return count


def web_workers(service: Service) -> list[psutil.Process]:
    (server,) = [
        child
        for child in psutil.Process(service.process.pid).children()
        if "cms.gunicorn_process" in child.cmdline()
    ]
    children: list[psutil.Process] = server.children()
    return children


def replace_a_worker(service: Service) -> None:
    before = web_workers(service)
    before[0].kill()

    def is_replaced() -> bool:
        now = web_workers(service)
        return before[0] not in now and len(now) == len(before)

    eventually(is_replaced)


def await_value(service: Service, name: str, is_expected: Callable[[float], bool]) -> None:
    eventually(lambda: is_expected(value(scraped(service), name)))
