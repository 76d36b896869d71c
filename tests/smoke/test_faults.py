"""Whoever is killed in the middle of whatever, the database holds whole writes or
nothing of them (docs/deployment.md).

CMS_FAULT_ROUNDS is how often each of them is killed.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from random import Random

import psutil
import psycopg
import pytest

from cms.app import create_app
from cms.auth import accounts
from cms.config import load
from cms.embedded.lifetime import start
from tests.api.nesting import make_relations
from tests.client import Client
from tests.smoke.faults import WRITERS, Shared, Writer, await_answers, busy, check
from tests.smoke.running import Service, new_folder, serving
from tests.store.embedded.servers import FAST, kill, postmaster
from tests.things import Table

pytestmark = pytest.mark.slow

ROUNDS = int(os.environ.get("CMS_FAULT_ROUNDS", "3"))
SECRET = "only-for-tests-" * 3
# A mail server that never answers keeps the jobs of all mails in the queue.
NOWHERE = {"EMAIL_TRANSPORT": "smtp", "EMAIL_SMTP_HOST": "127.0.0.1", "EMAIL_SMTP_PORT": "9"}
SETTINGS = {"SECRET": SECRET, "WEB_CONCURRENCY": "2", "LOG_LEVEL": "fatal", **NOWHERE}


@dataclass(frozen=True)
class ServiceAndServer:
    """A service over a database server that can be killed apart from it."""

    service: Service
    servers: ExitStack
    data: Path
    dsn: str
    writers: list[Writer]
    random: Random

    def restart(self) -> None:
        self.servers.enter_context(start(self.data, settings=FAST))


@pytest.fixture(scope="module")
def running() -> Iterator[ServiceAndServer]:
    seed = int(os.environ.get("CMS_FAULT_SEED", time.time()))
    print(f"CMS_FAULT_SEED={seed}")
    with new_folder() as folder, ExitStack() as servers:
        data = folder / "server"
        dsn = servers.enter_context(start(data, settings=FAST)).dsn
        with serving(folder, DATABASE_URL=dsn, **SETTINGS) as service:
            token = accounts.admin_token(dsn, secret=SECRET, life=timedelta(hours=1))
            shared = make_site(dsn, folder, token)
            url = f"http://127.0.0.1:{service.port}"
            writers = [Writer(url, token, shared, seed + number) for number in range(WRITERS)]
            yield ServiceAndServer(service, servers, data, dsn, writers, Random(seed))


def make_site(dsn: str, folder: Path, token: str) -> Shared:
    """Make the collections, and what all writers share."""
    environ = {
        "SECRET": SECRET,
        "DATABASE_URL": dsn,
        "LOG_LEVEL": "fatal",
        "RATE_LIMITER_ENABLED": "false",
    }
    app = create_app(load(environ, folder=folder))
    admin = Client(app, token)
    make_relations(admin)
    posts = [post["id"] for post in Table(admin, "posts").add({"title": "new"}, {"title": "new"})]
    role = admin.get("/roles").data[0]["id"]
    admin.close()
    return Shared(posts, role)


def worker_processes(service: Service) -> list[psutil.Process]:
    """Return the processes that answer requests: children of the web
    server, which is one of the service's.
    """
    processes = psutil.Process(service.process.pid).children(recursive=True)
    web = {one.pid for one in processes if "cms.gunicorn_process" in one.cmdline()}
    return [one for one in processes if one.pid in web and one.ppid() in web]


def backend(dsn: str) -> int:
    """Return a process of the database server that works for the service."""
    with psycopg.connect(dsn) as connection:
        sql = """SELECT pid FROM pg_stat_activity
            WHERE backend_type = 'client backend' AND pid <> pg_backend_pid() ORDER BY state =
                'idle', random()"""
        row = connection.execute(sql).fetchone()
    assert row
    return int(row[0])


def test_killed_workers_leave_whole_writes_or_none(running: ServiceAndServer) -> None:
    for _ in range(ROUNDS):
        with busy(running.writers):
            await_answers(running.writers, running.random.randrange(1, 30))
            time.sleep(running.random.random() / 50)
            running.random.choice(worker_processes(running.service)).kill()
            await_answers(running.writers, 10)
        check(running.dsn, running.writers)
    assert sum(writer.ledger.unheard for writer in running.writers) > 0


def test_killed_backends_and_servers_of_the_database_leave_whole_writes_or_none(
    running: ServiceAndServer,
) -> None:
    for number in range(max(2, ROUNDS // 2)):
        with busy(running.writers):
            await_answers(running.writers, running.random.randrange(1, 30))
            time.sleep(running.random.random() / 50)
            if number % 2:
                kill(
                    backend(running.dsn)
                )  # the server ends all others, too, and recovers by itself
            else:
                kill(postmaster(running.data))
                running.restart()
            await_answers(running.writers, 10)
        check(running.dsn, running.writers)
