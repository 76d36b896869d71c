"""The database is stopped and started under load: 503 meanwhile, and then all goes on by itself."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import pytest
import requests

from cms.auth import accounts
from cms.database.migrate import migrate
from cms.embedded.lifetime import start
from tests.client import ADMIN_EMAIL, ADMIN_PASSWORD
from tests.machines.installation import Client, Installation, installation
from tests.smoke.faults import WRITERS, Writer, await_answers, busy, check
from tests.smoke.running import TIMEOUT_SECONDS, new_folder
from tests.smoke.test_faults import NOWHERE, SECRET, make_site
from tests.store.embedded.servers import FAST

pytestmark = pytest.mark.slow

ROUNDS = 2


@dataclass(frozen=True)
class Site:
    """Web servers and a worker over a database server that can be stopped apart from them."""

    machines: Installation
    server: ExitStack
    data: Path
    dsn: str
    writers: list[Writer]
    admin: Client


@pytest.fixture(scope="module")
def stoppable_site() -> Iterator[Site]:
    with new_folder() as folder, ExitStack() as server:
        data = folder / "server"
        dsn = server.enter_context(start(data, settings=FAST)).dsn
        migrate(dsn)
        accounts.first_admin(dsn, email=ADMIN_EMAIL, password=ADMIN_PASSWORD)
        settings = {"SECRET": SECRET, **NOWHERE}
        with installation(folder, dsn, settings, web=2, workers=1) as machines:
            token = accounts.admin_token(dsn, secret=SECRET, life=timedelta(hours=1))
            shared = make_site(dsn, folder, token)
            urls = [machine.url for machine in machines.web]
            writers = [Writer(urls[n % 2], token, shared, n) for n in range(WRITERS)]
            yield Site(machines, server, data, dsn, writers, Client(urls[0], token))


def test_a_database_that_is_stopped_and_started_loses_no_write_and_doubles_none(
    stoppable_site: Site,
) -> None:
    processes = [
        machine.process for machine in stoppable_site.machines.web + stoppable_site.machines.jobs
    ]
    for _ in range(ROUNDS):
        with busy(stoppable_site.writers):
            await_answers(stoppable_site.writers, 15)
            stoppable_site.server.close()
            for machine in stoppable_site.machines.web:
                answer = requests.get(f"{machine.url}/server/health", timeout=TIMEOUT_SECONDS)
                assert answer.status_code == 503
                assert int(answer.headers["Retry-After"]) > 0
            refused = stoppable_site.admin.send("POST", "/items/tags", json={"name": "never"})
            assert refused.json()["errors"][0]["extensions"]["code"] == "SERVICE_UNAVAILABLE"
            stoppable_site.server.enter_context(start(stoppable_site.data, settings=FAST))
            await_answers(stoppable_site.writers, 15)
        check(stoppable_site.dsn, stoppable_site.writers)
    assert stoppable_site.admin.data("GET", '/items/tags?filter={"name":{"_eq":"never"}}') == []
    assert sum(writer.ledger.unheard for writer in stoppable_site.writers) > 0
    # Nobody was restarted.
    assert [process and process.poll() for process in processes] == [None, None, None]
    for machine in stoppable_site.machines.web:
        assert "Traceback" not in machine.log_text()
