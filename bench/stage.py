"""What a run needs: a temporary folder, an embedded server in it, and settings."""

from __future__ import annotations

import secrets
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from bench.serving import RunningServer, serving
from bench.wire import call, request
from cms.auth.accounts import first_admin
from cms.database.migrate import migrate
from cms.embedded.lifetime import start

EMAIL = "admin@example.com"
PASSWORD = secrets.token_urlsafe(16)
WORKERS = "2"


@dataclass(frozen=True, slots=True)
class BenchEnvironment:
    """The folder of the database, its address, and the environment of the web servers."""

    folder: Path
    dsn: str
    environ: Mapping[str, str]


class Servers(NamedTuple):
    """The service and its floor, side by side."""

    service: RunningServer
    floor: RunningServer


@contextmanager
def prepared() -> Iterator[BenchEnvironment]:
    """Start a new database in a temporary folder, as `cms serve` does."""
    with _temporary_folder() as folder, start(folder) as server:
        migrate(server.dsn)
        first_admin(server.dsn, email=EMAIL, password=PASSWORD)
        yield BenchEnvironment(
            folder, server.dsn, _environment(folder) | {"DATABASE_URL": server.dsn}
        )


@contextmanager
def _temporary_folder() -> Iterator[Path]:
    """Make a folder that the database's account may enter, also when root runs this."""
    folder = Path(tempfile.mkdtemp(prefix="cms-bench-"))
    folder.chmod(0o755)  # `mkdtemp` lets nobody else in
    try:
        yield folder
    finally:
        shutil.rmtree(folder)


def _environment(folder: Path) -> dict[str, str]:
    """Return the settings: the defaults, but for a run of hours.

    Requests are counted, and none is refused; none is given up that reads 10,000,000 rows.
    """
    return {
        "DATA_DIR": str(folder),
        "WEB_CONCURRENCY": WORKERS,
        "ACCESS_TOKEN_TTL": "4h",
        "DB_STATEMENT_TIMEOUT": "5m",
        "WEB_TIMEOUT": "1h",
        "RATE_LIMITER_PER_SECOND": "1000000",
        "RATE_LIMITER_PER_MINUTE": "60000000",
    }


@contextmanager
def service_and_floor(stage: BenchEnvironment) -> Iterator[Servers]:
    """Run the service and its floor side by side."""
    with (
        serving("service", stage.folder, stage.environ) as service,
        serving("floor", stage.folder, stage.environ) as floor,
    ):
        yield Servers(service, floor)


def login(service: RunningServer) -> str:
    """Return an access token of the admin."""
    payload = {"email": EMAIL, "password": PASSWORD}
    tokens: dict[str, Any] = call(service.address, request("POST", "/auth/login", payload=payload))
    return str(tokens["access_token"])


def sender(service: RunningServer, token: str) -> Callable[[str, object], object]:
    """Return a function that sends POST requests to the service as the admin."""
    return lambda path, payload: call(
        service.address, request("POST", path, token=token, payload=payload)
    )
