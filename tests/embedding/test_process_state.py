"""What a copy leaves in the process around it: nothing that another copy could meet, no handler of
a signal, no logging; and what `close` ends.
"""

from __future__ import annotations

import functools
import logging
import os
import signal
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from weakref import WeakSet

import psutil
import psycopg
import pytest
from cachebox import LRUCache

from cms.app import create_app
from cms.auth import accounts
from cms.config import Config
from tests.client import ADMIN_EMAIL, ADMIN_PASSWORD, Client
from tests.files.images import picture
from tests.rate_limits.redis_server import redis_server
from tests.things import admin_token

Use = Callable[[Config], None]

OF_THE_PROCESS = {
    "cms.rate_limits.shared_table.PROCESS_TABLE": "its keys are digests of secret and database",
    "cms.hashing.hashing_queue.queue": "a hash takes the processors of all; it knows no database",
    "cms.hashing.passwords.queue": "the same one",
    "cms.processes.memory._TRIMMER": "the allocator is that of the process",
    "cms.metrics.metrics._instances": "weak references, for forks",
    "cms.processes.forks._objects": "weak references",
}
"""What modules hold that changes, and why no copy notices another one by it."""

PURE = {
    "cms.access.ip_addresses",
    "cms.dashboards.charts",
    "cms.database.queue_schema",
    "cms.database.statement_names",
    "cms.database.statements",
    "cms.flows.secret_texts",
    "cms.fragment",
    "cms.http.assets",
    "cms.http.requests.request",
    "cms.logs",
    "cms.outgoing.outgoing_requests",
    "cms.query.plan.inner_parts",
    "cms.query.sql.arguments",
    "cms.query.sql.constants",
    "cms.regex",
    "cms.web.request_head",
}
"""Modules that remember results of functions of their arguments alone, which know no database."""


def use(config: Config) -> None:
    """Use a copy in many ways, and close it."""
    anonymous = Client(create_app(config))
    api = anonymous.bearing(admin_token(config, config.database_url or ""))
    fields = [{"field": "title", "type": "string", "schema": {}}]
    api.post("/collections", {"collection": "pages", "schema": {}, "fields": fields})
    assert api.post("/items/pages", {"title": "a"}).status == 200
    assert api.get("/items/pages", **{"filter[title][_eq]": "a"}).data
    assert api.post("/auth/login", {"email": ADMIN_EMAIL, "password": ADMIN_PASSWORD}).data
    for path in ("/server/health", "/metrics", "/server/specs/oas", "/activity", "/nowhere"):
        api.get(path)
    assert api.get("/items/pages?export=csv").status == 200
    render(api)
    run_script(api)
    anonymous.close()


def render(api: Client) -> None:
    """Transform an image, in a child process."""
    head = b'--x\r\nContent-Disposition: form-data; name="f"; filename="a.png"\r\n\r\n'
    raw = head + picture("PNG") + b"\r\n--x--"
    form = {"Content-Type": "multipart/form-data; boundary=x"}
    key = api.send("POST", "/files", raw=raw, **form).data["id"]
    assert api.get(f"/assets/{key}", width=2, format="jpg").status == 200


def run_script(api: Client) -> None:
    """Run a flow with a script, in a child process."""
    options = {"method": "GET", "return": "$last"}
    flow = {"name": "f", "status": "active", "trigger": "webhook", "options": options}
    key = api.post("/flows", flow).data["id"]
    code = "module.exports = () => ({ok: true})"
    operation = {"flow": key, "key": "s", "type": "exec", "options": {"code": code}}
    step = api.post("/operations", operation).data["id"]
    assert api.patch(f"/flows/{key}", {"operation": step}).status == 200
    assert api.get(f"/flows/trigger/{key}").data == {"ok": True}


@pytest.fixture
def own_config(config: Config, tmp_path: Path) -> Config:
    return replace(config, data_dir=tmp_path, rate_limiter_enabled=True)


def module_state() -> dict[str, str]:
    """Return what the modules of the service hold, as far as it can change."""
    state = {}
    for module_name, module in list(sys.modules.items()):
        if not module_name.startswith("cms."):
            continue
        for name, value in list(vars(module).items()):
            if (content := contents(value)) is not None and not name.startswith("__"):
                state[f"{module_name}.{name}"] = content
    return state


def contents(value: object) -> str | None:
    """Return what a value holds, None for one that cannot change."""
    if isinstance(value, dict | list | set | LRUCache | WeakSet):
        return f"{len(value)} {sorted(map(repr, value))}"
    if isinstance(value, functools._lru_cache_wrapper):
        return f"{value.cache_info().currsize} results"
    if type(value).__module__.startswith("cms.") and hasattr(value, "__dict__"):
        return repr(sorted(vars(value).items(), key=lambda item: item[0]))
    return None


def module_of(name: str) -> str:
    return name.rpartition(".")[0]


def test_modules_keep_nothing_of_a_copy(own_config: Config) -> None:
    create_app(own_config)  # has the modules imported
    before = module_state()
    use(own_config)
    after = module_state()
    changed = {name for name in before if before[name] != after.get(name)} - set(OF_THE_PROCESS)
    assert {name for name in changed if module_of(name) not in PURE} == set()
    cached = {name for name in changed if module_of(name) in PURE}
    assert {name for name in cached if not after[name].endswith("results")} == set()


def process_settings() -> dict[str, object]:
    """Return what belongs to the process around the service."""
    loggers = [logging.getLogger(), *map(logging.getLogger, ("cms", "cms.access", "gunicorn"))]
    return {
        "signals": [signal.getsignal(number) for number in signal.valid_signals()],
        "logging": [
            (logger.level, logger.handlers, logger.filters, logger.propagate) for logger in loggers
        ],
        "hooks": (sys.excepthook, threading.excepthook, sys.unraisablehook),
        "warnings": list(warnings.filters),
        "environment": dict(os.environ),
        "folder": os.getcwd(),
        "recursion": sys.getrecursionlimit(),
        "umask": umask(),
    }


def umask() -> int:
    current = os.umask(0)
    os.umask(current)
    return current


@pytest.mark.release
def test_the_settings_of_the_process_stay(own_config: Config) -> None:
    before = process_settings()
    use(own_config)
    assert process_settings() == before


def test_creating_one_starts_nothing(own_config: Config) -> None:
    threads = threading.enumerate()
    children = psutil.Process().children()
    app = create_app(own_config)
    assert threading.enumerate() == threads
    assert psutil.Process().children() == children
    assert connections(own_config) == 0
    app.close()


@pytest.fixture
def redis_address() -> Iterator[str]:
    with redis_server() as running:
        yield running.address


def connections(config: Config) -> int:
    query = (
        "SELECT count(*) FROM pg_stat_activity"
        " WHERE datname = current_database() AND pid <> pg_backend_pid()"
        " AND backend_type = 'client backend'"
    )
    with psycopg.connect(config.database_url or "", autocommit=True) as connection:
        row = connection.execute(query).fetchone()
    return int(row[0]) if row else 0


@pytest.mark.release
def test_closing_ends_connections_threads_and_children(
    own_config: Config, redis_address: str
) -> None:
    threads = set(threading.enumerate())
    children = set(psutil.Process().children(recursive=True))
    ports = open_ports()
    use(replace(own_config, redis=redis_address))
    left = {thread.name for thread in set(threading.enumerate()) - threads}
    assert left <= {"memory"}, "only the one that belongs to the process"
    assert set(psutil.Process().children(recursive=True)) <= children
    assert connections(own_config) == 0
    assert open_ports() == ports


def open_ports() -> list[Any]:
    return [one.raddr for one in psutil.Process().net_connections("tcp") if one.raddr]


@pytest.mark.release
def test_a_process_that_is_forked_later_has_connections_of_its_own(own_config: Config) -> None:
    """As a server does that loads the application, asks it something, and then forks."""
    email = "ada@example.com"
    accounts.create_user(own_config.database_url or "", email=email, password="x", role=None)
    client = Client(create_app(own_config, identify=lambda environ: email))
    admin = client.bearing(admin_token(own_config, own_config.database_url or ""))
    run_script(admin)
    backends = {backend(client) for _ in range(3)}
    child = os.fork()
    if child == 0:
        succeeded = False
        try:
            succeeded = not ({backend(client) for _ in range(3)} & backends)
            succeeded &= client.get("/users/me").status == 200
            run_script(admin)
            succeeded &= psutil.Process().children() != []  # not that of the parent
            client.close()
        finally:
            os._exit(0 if succeeded else 1)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0
    # Those of this process go on.
    assert {backend(client) for _ in range(3)} & backends
    run_script(admin)
    client.close()


def backend(client: Client) -> int:
    return int(client.app.store.database.fetch("SELECT pg_backend_pid()")[0][0])
