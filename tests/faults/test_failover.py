"""The primary dies under load and its replica takes over: no restart, no lost and no doubled write.

`DATABASE_URL` names both servers (docs/deployment.md).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from pathlib import Path
from urllib.parse import quote

import psycopg
import pytest
import requests
from psycopg.conninfo import conninfo_to_dict

from cms.auth import accounts
from cms.database.migrate import migrate
from tests.client import ADMIN_EMAIL, ADMIN_PASSWORD
from tests.machines.installation import Client, Installation, installation
from tests.machines.replica import Servers, replicated
from tests.smoke.faults import WRITERS, Writer, await_answers, busy, check
from tests.smoke.running import TIMEOUT_SECONDS, command, new_folder
from tests.smoke.test_faults import NOWHERE, SECRET, make_site
from tests.store.embedded.servers import kill, postmaster
from tests.waiting import eventually

pytestmark = pytest.mark.slow


@dataclass(frozen=True)
class Cluster:
    """An installation whose address names two servers, of which the second is a replica."""

    servers: Servers
    machines: Installation
    address: str
    writers: list[Writer]
    admin: Client
    folder: Path


def address_of(servers: Servers) -> str:
    """Return an address that leads to whichever of the servers takes writes."""
    parts = [conninfo_to_dict(dsn) for dsn in (servers.primary, servers.replica)]
    # Sockets have no place before the path of an address.
    hosts = ",".join(quote(str(part["host"]), safe="") for part in parts)
    ports = ",".join(str(part["port"]) for part in parts)
    names = f"{parts[0]['user']}@/{parts[0]['dbname']}"
    attributes = "target_session_attrs=read-write"
    return f"postgresql://{names}?host={hosts}&port={ports}&{attributes}"


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with replicated() as servers, new_folder() as folder:
        migrate(servers.primary)
        accounts.first_admin(servers.primary, email=ADMIN_EMAIL, password=ADMIN_PASSWORD)
        address = address_of(servers)
        settings = {"SECRET": SECRET, **NOWHERE}
        with installation(folder, address, settings, web=2, workers=1) as machines:
            token = accounts.admin_token(address, secret=SECRET, life=timedelta(hours=1))
            shared = make_site(address, folder, token)
            urls = [machine.url for machine in machines.web]
            writers = [Writer(urls[n % 2], token, shared, n) for n in range(WRITERS)]
            admin = Client(urls[0], token)
            yield Cluster(servers, machines, address, writers, admin, folder)


def commit_on_both(servers: Servers) -> None:
    """Have the primary acknowledge only what its replica has as well."""
    with psycopg.connect(servers.primary, autocommit=True) as connection:
        connection.execute("ALTER SYSTEM SET synchronous_standby_names = '*'")
        connection.execute("SELECT pg_reload_conf()")
        states = "SELECT count(*) FROM pg_stat_replication WHERE sync_state = 'sync'"
        eventually(lambda: connection.execute(states).fetchone() == (1,))


def has_no_database(url: str) -> bool:
    """Tell whether a machine has noticed: sessions outlive the postmaster by a moment."""
    answer = requests.get(f"{url}/server/health", timeout=TIMEOUT_SECONDS)
    return answer.status_code == 503 and int(answer.headers["Retry-After"]) > 0


def run_a_flow(admin: Client) -> None:
    """Run a flow as a job, and wait until a worker has done it."""
    flow = {"name": "Hook", "trigger": "webhook", "options": {"method": "GET", "async": True}}
    key = admin.data("POST", "/flows", flow)["id"]
    assert admin.send("GET", f"/flows/trigger/{key}").ok
    runs = f"/flows/{key}/runs"
    eventually(lambda: [run["state"] for run in admin.data("GET", runs)] == ["done"])


def test_the_promoted_replica_is_found_without_a_restart_and_no_write_is_lost_or_doubled(
    cluster: Cluster,
) -> None:
    commit_on_both(cluster.servers)
    processes = [machine.process for machine in cluster.machines.web + cluster.machines.jobs]
    with busy(cluster.writers):
        await_answers(cluster.writers, 20)
        kill(postmaster(cluster.servers.primary_data))
        for machine in cluster.machines.web:
            eventually(partial(has_no_database, machine.url))
        with psycopg.connect(cluster.servers.replica, autocommit=True) as connection:
            connection.execute("SELECT pg_promote()")
        await_answers(cluster.writers, 20)
    check(cluster.servers.replica, cluster.writers)
    assert sum(writer.ledger.unheard for writer in cluster.writers) > 0
    run_a_flow(cluster.admin)
    assert [process and process.poll() for process in processes] == [None, None, None]
    for machine in cluster.machines.web:
        assert "Traceback" not in machine.log_text()


def test_commands_find_the_server_that_takes_writes(cluster: Cluster) -> None:
    for words in (["migrate"], ["maintain"], ["doctor"]):
        run = command(cluster.folder, *words, DATABASE_URL=cluster.address, SECRET=SECRET)
        assert run.returncode == 0, run.stdout
