"""Clients that read and write without a pause, and count what became of their requests."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field

import requests

from tests.machines.installation import Client
from tests.smoke.running import TIMEOUT_SECONDS
from tests.waiting import eventually

CLIENTS = 6
ITEMS = "/items/notes"


@dataclass
class Outcomes:
    """How often which method had which outcome; `created` counts the rows that were promised."""

    counts: Counter[str] = field(default_factory=Counter)
    created: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)

    def add(self, method: str, outcome: str) -> None:
        with self.lock:
            self.counts[f"{method} {outcome}"] += 1
            self.created += (method, outcome) == ("POST", "200")

    @property
    def failed(self) -> dict[str, int]:
        good = ("200", "204")
        return {name: n for name, n in self.counts.items() if name.split(" ", 1)[1] not in good}

    def await_more(self, number: int) -> None:
        """Wait until so many more requests have been answered."""
        wanted = self.counts.total() + number
        eventually(lambda: self.counts.total() >= wanted, otherwise=lambda: self.counts)


def make_notes(admin: Client) -> None:
    fields = [{"field": "text", "type": "string"}]
    admin.data("POST", "/collections", {"collection": "notes", "schema": {}, "fields": fields})


@contextmanager
def load(client: Client) -> Iterator[Outcomes]:
    """Send requests from several clients during the block; each keeps its connection."""
    outcomes = Outcomes()
    ended = threading.Event()
    with ThreadPoolExecutor(CLIENTS) as threads:
        running = [threads.submit(_send, client, outcomes, ended) for _ in range(CLIENTS)]
        try:
            yield outcomes
        finally:
            ended.set()
            _require_no_exception(running)


def _require_no_exception(running: list[Future[None]]) -> None:
    for one in running:
        one.result(TIMEOUT_SECONDS)


def _send(client: Client, outcomes: Outcomes, ended: threading.Event) -> None:
    with requests.Session() as session:
        session.headers["Authorization"] = f"Bearer {client.token}"
        key = 0
        while not ended.is_set():
            answer = _call(session, outcomes, "POST", client.url + ITEMS, {"text": "new"})
            if answer is not None and answer.ok:
                key = answer.json()["data"]["id"]
            _call(session, outcomes, "GET", f"{client.url}{ITEMS}?limit=10&sort=-id")
            _call(session, outcomes, "PATCH", f"{client.url}{ITEMS}/{key}", {"text": "changed"})
            _call(session, outcomes, "GET", f"{client.url}/users/me")


def _call(
    session: requests.Session, outcomes: Outcomes, method: str, url: str, body: object = None
) -> requests.Response | None:
    try:
        answer = session.request(method, url, json=body, timeout=TIMEOUT_SECONDS)
    except requests.RequestException as error:
        outcomes.add(method, f"{type(error).__name__}: {error}")
        return None
    outcomes.add(method, str(answer.status_code))
    return answer
