"""What a run needs: a temporary folder, the embedded server in it, and the settings of both web servers."""

from __future__ import annotations

import secrets
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.serving import Running, serving
from bench.wire import call, request
from cms.auth.accounts import first_admin
from cms.store.embedded import start
from cms.store.migrate import migrate

EMAIL, PASSWORD = "admin@example.com", "only for this machine and this run"
WORKERS = "2"


@dataclass(frozen=True, slots=True)
class Stage:
    """The folder with the database in it, the database's address, the environment of the web servers."""

    folder: Path
    dsn: str
    environ: Mapping[str, str]


@contextmanager
def staged() -> Iterator[Stage]:
    """Start a database of our own, as `cms serve` would, and remove it with all that it held."""
    with temporary_folder() as folder, start(folder) as server:
        migrate(server.dsn)
        first_admin(server.dsn, email=EMAIL, password=PASSWORD)
        yield Stage(folder, server.dsn, environment(folder, server.dsn))


@contextmanager
def temporary_folder() -> Iterator[Path]:
    """Make a folder that the database's account may enter, also when root runs this."""
    folder = Path(tempfile.mkdtemp(prefix="cms-bench-"))
    folder.chmod(0o755)
    try:
        yield folder
    finally:
        shutil.rmtree(folder)


def environment(folder: Path, dsn: str) -> dict[str, str]:
    """Return the settings: the defaults, but for the size of a body that holds 10,000 items."""
    return {
        "DATABASE_URL": dsn,
        "DATA_DIR": str(folder),
        "WEB_CONCURRENCY": WORKERS,
        "MAX_PAYLOAD_SIZE": "64mb",
        "ADMIN_EMAIL": EMAIL,
        "ADMIN_PASSWORD": PASSWORD,
    }


@contextmanager
def both(stage: Stage) -> Iterator[tuple[Running, Running]]:
    """Run the service and its floor side by side."""
    with (
        serving("service", stage.folder, stage.environ) as service,
        serving("floor", stage.folder, stage.environ) as floor,
    ):
        yield service, floor


def login(service: Running) -> str:
    """Return an access token of the admin."""
    payload = {"email": EMAIL, "password": PASSWORD}
    found: dict[str, Any] = call(service.address, request("POST", "/auth/login", payload=payload))
    return str(found["access_token"])
