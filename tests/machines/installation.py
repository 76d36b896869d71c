"""An installation of several machines: web servers and job workers over one database."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import requests

from tests.client import ADMIN_EMAIL, ADMIN_PASSWORD
from tests.smoke.pinging import ANSWERED, ping
from tests.smoke.running import TIMEOUT_SECONDS, environment, free_port
from tests.waiting import eventually

CHECKOUT = Path(__file__).parents[2]
METRICS_TOKEN = "a token for Prometheus"
SETTINGS = {
    "SECRET": "only-for-tests-" * 3,
    "IP_TRUST_PROXY": "1",
    "LOG_LEVEL": "warn",
    "METRICS_TOKEN": METRICS_TOKEN,
    "EMAIL_TRANSPORT": "log",
}

_numbers = itertools.count(1)


def new_address() -> str:
    """Return an address that no client has had before."""
    number = next(_numbers)
    return f"10.{number // 65536}.{number // 256 % 256}.{number % 256}"


@dataclass(frozen=True)
class Client:
    """Sends requests to one address, each as from a client address of its own."""

    url: str
    token: str = ""

    def send(self, method: str, path: str, **options: Any) -> requests.Response:
        headers = {"X-Forwarded-For": new_address(), **options.pop("headers", {})}
        if self.token:
            headers.setdefault("Authorization", f"Bearer {self.token}")
        return requests.request(
            method, self.url + path, headers=headers, timeout=TIMEOUT_SECONDS, **options
        )

    def data(self, method: str, path: str, json: object = None) -> Any:
        """Return the data of an answer that must be a good one."""
        answer = self.send(method, path, json=json)
        assert answer.ok, (answer.status_code, answer.text)
        return answer.json()["data"] if answer.content else None

    def login(self, email: str = ADMIN_EMAIL, password: str = ADMIN_PASSWORD) -> Client:
        tokens = self.data("POST", "/auth/login", {"email": email, "password": password})
        return Client(self.url, tokens["access_token"])

    def at(self, machine: Machine) -> Client:
        """Return the same caller's client of another machine."""
        return Client(machine.url, self.token)


@dataclass
class Machine:
    """One process with a folder of its own; `restart` may run it from another checkout."""

    words: list[str]
    settings: dict[str, str]
    folder: Path
    port: int
    checkout: Path = CHECKOUT
    process: subprocess.Popen[bytes] | None = field(default=None, repr=False)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> None:
        self.folder.mkdir(exist_ok=True)
        with (self.folder / "output").open("ab") as output:
            self.process = subprocess.Popen(
                [sys.executable, *self.words],
                cwd=self.folder,
                env=environment(self.folder, self.port, **self.settings)
                | {"PYTHONPATH": os.pathsep.join([str(self.checkout), *filter(None, sys.path)])},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
            )

    def await_answer(self) -> None:
        eventually(self._answers, otherwise=self.log_text)

    def _answers(self) -> bool:
        assert self.process, "it was not started"
        assert self.process.poll() is None, self.log_text()
        return ping(self.port) == ANSWERED

    def await_words(self, words: str) -> None:
        """Wait until it has printed these words, also in an earlier run."""
        eventually(lambda: words in self.log_text(), otherwise=self.log_text)

    def stop(self) -> int:
        """Send SIGTERM and return the exit code."""
        assert self.process, "it was not started"
        self.process.terminate()
        return self.process.wait(TIMEOUT_SECONDS)

    def kill(self) -> None:
        if self.process and self.process.poll() is None:
            self.process.kill()
            self.process.wait(TIMEOUT_SECONDS)

    def log_text(self) -> str:
        return (self.folder / "output").read_text()


def web_machine(folder: Path, settings: dict[str, str]) -> Machine:
    script = str(CHECKOUT / "gunicorn.conf.py")
    words = ["-m", "gunicorn", "-c", script, "cms.app:create_wsgi()"]
    return Machine(words, settings, folder, free_port())


def job_machine(folder: Path, settings: dict[str, str]) -> Machine:
    return Machine(["-m", "cms", "worker"], settings, folder, free_port())


@dataclass(frozen=True)
class Installation:
    web: list[Machine]
    jobs: list[Machine]

    @property
    def first(self) -> Client:
        return Client(self.web[0].url)

    def log_text(self) -> str:
        return "".join(machine.log_text() for machine in [*self.web, *self.jobs])


@contextmanager
def installation(
    folder: Path,
    dsn: str,
    settings: Mapping[str, str],
    *,
    web: int,
    workers: int = 0,
) -> Iterator[Installation]:
    """Run so many web servers and job workers; yield once all of them serve."""
    every = {**SETTINGS, "DATABASE_URL": dsn, **settings}
    servers = [web_machine(folder / f"web{n}", every) for n in range(web)]
    jobs = [job_machine(folder / f"jobs{n}", every) for n in range(workers)]
    with ExitStack() as stack:
        for machine in [*servers, *jobs]:
            stack.callback(machine.kill)
            machine.start()
        for machine in servers:
            machine.await_answer()
        for machine in jobs:
            machine.await_words("waits for jobs")
        yield Installation(servers, jobs)
