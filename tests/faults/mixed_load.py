"""Clients that do all kinds of things without a pause, and keep count of what was answered."""

from __future__ import annotations

import itertools
import os
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from random import Random
from typing import Any

import requests

from tests.client import ADMIN_EMAIL, ADMIN_PASSWORD
from tests.files.images import picture
from tests.machines.installation import Client

TIMEOUT_SECONDS = 120.0
CLIENTS = 16
PHOTO = picture("JPEG", (640, 480))

OK = (200, 204)

_widths = itertools.count()


@dataclass
class Tally:
    """How often each kind of request was answered how; `wrong` has what nobody should see."""

    answers: Counter[tuple[str, int]] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def add(self, kind: str, answer: requests.Response) -> None:
        status = answer.status_code
        may_try_again = status == 503 and "Retry-After" in answer.headers
        with self.lock:
            self.answers[kind, status] += 1
            if status not in OK and not may_try_again:
                self.wrong.append(f"{kind}: {status} {answer.text[:300]}")

    @property
    def kinds(self) -> set[str]:
        return {kind for kind, status in self.answers if status in OK}

    @property
    def total(self) -> int:
        return self.answers.total()

    @property
    def unavailable_count(self) -> int:
        return sum(count for (_, status), count in self.answers.items() if status == 503)


@dataclass(frozen=True)
class Site:
    """What all clients work with."""

    photo: str
    sync_flow: str
    async_flow: str


def make_site(admin: Client) -> Site:
    fields = [
        {"field": "text", "type": "text"},
        {"field": "number", "type": "integer"},
    ]
    admin.data("POST", "/collections", {"collection": "notes", "schema": {}, "fields": fields})
    photo = admin.send("POST", "/files", files={"file": ("a.jpg", PHOTO, "image/jpeg")})
    transform = {"type": "transform", "key": "answer", "options": {"json": {"done": True}}}
    flows = []
    for is_async in (False, True):
        flow = {
            "name": "Hook",
            "trigger": "webhook",
            "options": {"method": "POST", "async": is_async},
        }
        key = admin.data("POST", "/flows", flow)["id"]
        operation = admin.data("POST", "/operations", {**transform, "flow": key})
        admin.data("PATCH", f"/flows/{key}", {"operation": operation["id"]})
        flows.append(key)
    return Site(photo.json()["data"]["id"], *flows)


class MixedClient:
    """One client with a connection of its own."""

    def __init__(self, admin: Client, site: Site, tally: Tally, seed: int) -> None:
        self._url = admin.url
        self._site = site
        self._tally = tally
        self._random = Random(seed)
        self._session = requests.Session()
        self._session.headers["Authorization"] = f"Bearer {admin.token}"
        self._notes: list[int] = []
        self._files: list[str] = []

    def work(self, ended: threading.Event) -> None:
        actions: list[tuple[Callable[[], None], int]] = [
            (self._read, 30),
            (self._read_one, 20),
            (self._create, 12),
            (self._update, 8),
            (self._delete, 4),
            (self._create_many, 2),
            (self._upload, 4),
            (self._remove_file, 4),
            (self._deliver, 6),
            (self._transform, 2),
            (self._login, 1),
            (self._run_flow, 4),
            (self._queue_flow, 2),
            (self._export, 1),
        ]
        functions, weights = zip(*actions, strict=True)
        with self._session:
            while not ended.is_set():
                self._random.choices(functions, weights)[0]()

    def _send(self, kind: str, method: str, path: str, **options: Any) -> Any:
        """Return the `data` of a success."""
        try:
            answer = self._session.request(
                method, self._url + path, timeout=TIMEOUT_SECONDS, **options
            )
        except requests.RequestException as error:
            with self._tally.lock:
                self._tally.wrong.append(f"{kind}: {error}")
            return None
        self._tally.add(kind, answer)
        is_json = answer.headers.get("Content-Type", "").startswith("application/json")
        return answer.json().get("data") if answer.status_code == 200 and is_json else None

    def _read(self) -> None:
        number = self._random.randrange(1000)
        query = f'?limit=25&sort=-id&filter={{"number":{{"_gte":{number}}}}}'
        self._send("read", "GET", f"/items/notes{query}")

    def _read_one(self) -> None:
        if self._notes:
            key = self._random.choice(self._notes)
            self._send("read one", "GET", f"/items/notes/{key}?fields=id,text,number")

    def _note(self) -> dict[str, object]:
        return {"text": "x" * self._random.randrange(2000), "number": self._random.randrange(1000)}

    def _create(self) -> None:
        note = self._send("create", "POST", "/items/notes", json=self._note())
        if note:
            self._notes.append(note["id"])

    def _create_many(self) -> None:
        notes = [self._note() for _ in range(50)]
        self._send("create many", "POST", "/items/notes?fields=id", json=notes)

    def _update(self) -> None:
        if self._notes:
            key = self._random.choice(self._notes)
            self._send("update", "PATCH", f"/items/notes/{key}", json=self._note())

    def _delete(self) -> None:
        if len(self._notes) > 5:
            key = self._notes.pop(self._random.randrange(len(self._notes)))
            self._send("delete", "DELETE", f"/items/notes/{key}")

    def _upload(self) -> None:
        content = os.urandom(self._random.randrange(400_000))
        content = self._random.choice([content, PHOTO])
        made = self._send("upload", "POST", "/files", files={"file": ("a", content)})
        if made:
            self._files.append(made["id"])

    def _remove_file(self) -> None:
        if self._files:
            self._send("remove file", "DELETE", f"/files/{self._files.pop()}")

    def _deliver(self) -> None:
        self._send("deliver", "GET", f"/assets/{self._site.photo}")

    def _transform(self) -> None:
        width = 50 + next(_widths) % 500
        quality = 40 + next(_widths) // 500 % 50
        path = f"/assets/{self._site.photo}?width={width}&quality={quality}&format=webp"
        self._send("transform", "GET", path)

    def _login(self) -> None:
        login = {"email": ADMIN_EMAIL, "password": ADMIN_PASSWORD}
        self._send("login", "POST", "/auth/login", json=login)

    def _run_flow(self) -> None:
        path = f"/flows/trigger/{self._site.sync_flow}"
        self._send("run a flow", "POST", path, json={"a": 1})

    def _queue_flow(self) -> None:
        path = f"/flows/trigger/{self._site.async_flow}"
        self._send("queue a flow", "POST", path, json={"a": 1})

    def _export(self) -> None:
        self._send("export", "GET", "/items/notes?export=csv&limit=200")


@contextmanager
def mixed_load(clients: list[MixedClient]) -> Iterator[None]:
    """Have clients work during the block."""
    ended = threading.Event()
    with ThreadPoolExecutor(len(clients)) as threads:
        working = [threads.submit(client.work, ended) for client in clients]
        try:
            yield
        finally:
            ended.set()
            for one in working:
                one.result(TIMEOUT_SECONDS)


def wait(seconds: float, *, each: Callable[[], None]) -> None:
    """Wait, and do something each second."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        time.sleep(1)
        each()
