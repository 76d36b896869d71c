"""Machines behind nginx are restarted and upgraded one by one, while clients read and write."""

from __future__ import annotations

import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory

import psycopg
import pytest

from tests.databases import drop_database
from tests.machines.installation import CHECKOUT, Client, Installation, Machine, installation
from tests.machines.load import ITEMS, Outcomes, load, make_notes
from tests.machines.nginx import nginx
from tests.smoke.running import TIMEOUT_SECONDS, environment, free_port

pytestmark = [pytest.mark.release, pytest.mark.slow]

PAUSE_SECONDS = 3.0
"""How long nginx has to notice that a machine is back (docs/deployment.md)."""
NEWER = """-- For a test: a version that keeps one thing more of each user.
ALTER TABLE system_users ADD COLUMN nickname text;
CREATE INDEX system_users_nickname_index ON system_users (nickname);
"""


@dataclass(frozen=True)
class Proxied:
    machines: Installation
    admin: Client
    dsn: str
    folder: Path

    def rows(self) -> int:
        return int(self.admin.data("GET", f"{ITEMS}?aggregate[count]=*")[0]["count"])


@pytest.fixture
def proxied_site(make_database: Callable[..., str], template: str) -> Iterator[Proxied]:
    dsn = make_database(template)
    with TemporaryDirectory(prefix="cms-upgrades-") as name:
        folder = Path(name)
        with installation(folder, dsn, {}, web=3, workers=2) as machines:
            ports = [machine.port for machine in machines.web]
            with nginx(folder / "nginx", ports) as port:
                admin = replace(machines.first.login(), url=f"http://127.0.0.1:{port}")
                make_notes(admin)
                yield Proxied(machines, admin, dsn, folder)
    drop_database(dsn)


def restart_one_by_one(
    proxied_site: Proxied, outcomes: Outcomes, checkout: Path = CHECKOUT
) -> None:
    for machine in proxied_site.machines.jobs:
        assert machine.stop() == 0, machine.log_text()
        machine.checkout = checkout
        machine.start()
    for machine in proxied_site.machines.web:
        restart(machine, outcomes, checkout)


def restart(machine: Machine, outcomes: Outcomes, checkout: Path = CHECKOUT) -> None:
    """Stop a web server, let the others work for a while, and start it again."""
    assert machine.stop() == 0, machine.log_text()
    outcomes.await_more(20)
    machine.checkout = checkout
    machine.start()
    machine.await_answer()
    time.sleep(PAUSE_SECONDS)


def test_machines_restart_under_load_without_a_failed_request(proxied_site: Proxied) -> None:
    with load(proxied_site.admin) as outcomes:
        outcomes.await_more(50)
        restart_one_by_one(proxied_site, outcomes)
        outcomes.await_more(50)
    assert outcomes.failed == {}
    assert proxied_site.rows() == outcomes.created
    assert "Traceback" not in proxied_site.machines.log_text()


def newer_version(folder: Path) -> Path:
    """Return a copy of the checkout with one migration more."""
    checkout = folder / "newer"
    for part in ("cms", "sql"):
        shutil.copytree(
            CHECKOUT / part, checkout / part, ignore=shutil.ignore_patterns("__pycache__")
        )
    shutil.copy(CHECKOUT / "gunicorn.conf.py", checkout)
    migrations = checkout / "sql" / "migrations"
    number = len(list(migrations.glob("*.sql"))) + 1
    (migrations / f"{number:04}_nicknames.sql").write_text(NEWER)
    return checkout


def migrate(checkout: Path, folder: Path, dsn: str) -> str:
    process = subprocess.run(
        [sys.executable, "-m", "cms", "migrate"],
        cwd=folder,
        env=environment(folder, free_port(), DATABASE_URL=dsn, PYTHONPATH=str(checkout)),
        capture_output=True,
        text=True,
        timeout=TIMEOUT_SECONDS,
        check=False,
    )
    assert process.returncode == 0, process.stdout + process.stderr
    return process.stdout + process.stderr


def test_the_old_version_serves_while_the_database_is_migrated_and_the_new_one_takes_over(
    proxied_site: Proxied,
) -> None:
    newer = newer_version(proxied_site.folder)
    with load(proxied_site.admin) as outcomes:
        outcomes.await_more(50)
        assert "nicknames" in migrate(newer, proxied_site.folder, proxied_site.dsn)
        # The old version alone, over the new tables.
        outcomes.await_more(100)
        # Also one that was started again.
        restart(proxied_site.machines.web[0], outcomes)
        # From here on old and new ones side by side.
        restart_one_by_one(proxied_site, outcomes, newer)
        outcomes.await_more(50)
    assert outcomes.failed == {}
    assert proxied_site.rows() == outcomes.created
    # Python has compiled what web servers import, so they ran from there.
    assert list((newer / "cms" / "http" / "__pycache__").iterdir())
    with psycopg.connect(proxied_site.dsn) as connection:
        assert connection.execute("SELECT count(nickname) FROM system_users").fetchall() == [(0,)]
    assert "Traceback" not in proxied_site.machines.log_text()
