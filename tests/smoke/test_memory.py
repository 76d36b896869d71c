"""A web worker that has answered much holds no more memory afterwards than before."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass

import psutil
import pytest
import requests

from tests.smoke.running import TIMEOUT_SECONDS, new_folder, serving
from tests.things import aliases_of_text
from tests.waiting import eventually

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        not sys.platform.startswith("linux"), reason="memory goes back with glibc only"
    ),
]

PASSWORD = re.compile(r"The first admin is (\S+) with the password (\S+) ")
MORE = 45_000_000
"""Bytes that a worker may hold more than before: less than the answers come to."""


@dataclass(frozen=True)
class MeasuredService:
    """A running service with one long text in it, and its web worker."""

    url: str
    headers: dict[str, str]
    worker: psutil.Process

    def send(self, method: str, path: str, body: object = None) -> requests.Response:
        timeout = 2 * TIMEOUT_SECONDS
        return requests.request(
            method, self.url + path, json=body, headers=self.headers, timeout=timeout
        )

    def memory(self) -> int:
        return int(self.worker.memory_info().rss)


@pytest.fixture(scope="module")
def measured_service() -> Iterator[MeasuredService]:
    with new_folder() as folder, serving(folder) as service:
        password = PASSWORD.search(service.log_text())
        assert password
        url = f"http://127.0.0.1:{service.port}"
        login = requests.post(
            f"{url}/auth/login", json={"email": password[1], "password": password[2]}, timeout=60
        ).json()
        children = psutil.Process(service.process.pid).children(recursive=True)
        servers = [child for child in children if "cms.gunicorn_process" in child.cmdline()]
        measured_service = MeasuredService(
            url,
            {"Authorization": f"Bearer {login['data']['access_token']}"},
            max(servers, key=_memory),
        )
        fields = [{"field": "text", "type": "text"}]
        assert measured_service.send(
            "POST", "/collections", {"collection": "notes", "schema": {}, "fields": fields}
        ).ok
        assert measured_service.send("POST", "/items/notes?fields=id", {"text": "x" * 900_000}).ok
        yield measured_service


def _memory(process: psutil.Process) -> int:
    return int(process.memory_info().rss)


def test_memory_goes_back_after_large_answers_and_refused_ones(
    measured_service: MeasuredService,
) -> None:
    assert measured_service.send("GET", "/items/notes?fields=id").ok
    before = measured_service.memory()
    assert (
        len(measured_service.send("GET", f"/items/notes/1?{aliases_of_text(60)}").content)
        > 50_000_000
    )
    assert measured_service.send("GET", f"/items/notes/1?{aliases_of_text(99)}").status_code == 400
    read = {"method": "read", "collection": "notes", "query": {"fields": ["text"]}}
    assert (
        len(measured_service.send("POST", "/batch", {"operations": [read] * 60}).content)
        > 50_000_000
    )
    assert measured_service.send("POST", "/batch", {"operations": [read] * 99}).status_code == 400
    eventually(
        lambda: measured_service.memory() <= before + MORE,
        otherwise=lambda: f"{measured_service.memory()} bytes after {before}",
    )
