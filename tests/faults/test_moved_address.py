"""One address that leads to another server after a failover, and servers that vanish."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from dataclasses import replace

import pytest

from cms.app import create_app
from cms.auth import accounts
from cms.config import Config
from cms.database.connections import Database
from cms.database.migrate import migrate
from tests.client import ADMIN_EMAIL, ADMIN_PASSWORD, Client
from tests.faults.forwarder import Forwarder, forwarding
from tests.machines.replica import Servers, replicated
from tests.things import admin_token
from tests.waiting import eventually

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def servers() -> Iterator[Servers]:
    with replicated() as servers:
        migrate(servers.primary)
        accounts.first_admin(servers.primary, email=ADMIN_EMAIL, password=ADMIN_PASSWORD)
        yield servers


@pytest.fixture
def forwarder(servers: Servers) -> Iterator[Forwarder]:
    with forwarding(servers.primary) as forwarder:
        yield forwarder


def test_writes_go_on_once_the_address_leads_to_the_primary_again(
    servers: Servers, forwarder: Forwarder, settings: Config
) -> None:
    config = replace(settings, database_url=forwarder.address, database_pool_size=1)
    token = admin_token(config, servers.primary)
    servers.await_replica()
    # The name still leads to a server that takes no writes, and nobody closes connections to it.
    forwarder.target = servers.replica
    admin = Client(create_app(config), token)
    refused = admin.post("/roles", {"name": "Editors"})
    assert (refused.status, refused.errors[0]["code"]) == (503, "SERVICE_UNAVAILABLE")
    assert int(refused.headers["retry-after"]) > 0
    forwarder.target = servers.primary
    # The pool may have replaced the connection before the address moved.
    eventually(lambda: admin.post("/roles", {"name": "Editors"}).status == 200)
    admin.close()


def test_a_server_that_vanishes_is_given_up_in_seconds_and_not_in_hours(
    forwarder: Forwarder, settings: Config
) -> None:
    options = {
        socket.SO_KEEPALIVE: (socket.SOL_SOCKET, 1),
        socket.TCP_KEEPIDLE: (socket.IPPROTO_TCP, 10),
        socket.TCP_KEEPINTVL: (socket.IPPROTO_TCP, 5),
        socket.TCP_KEEPCNT: (socket.IPPROTO_TCP, 3),
    }
    database = Database(replace(settings, database_url=forwarder.address))
    with database.transaction() as transaction:
        descriptor = transaction.connection.fileno()
        with socket.socket(fileno=descriptor) as connected:
            set_options = {
                name: connected.getsockopt(level, name) for name, (level, _) in options.items()
            }
            limit = connected.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT)
            connected.detach()
    database.close()
    assert set_options == {name: value for name, (_, value) in options.items()}
    assert limit == 30_000


def test_an_address_may_set_its_own_limits(forwarder: Forwarder, settings: Config) -> None:
    address = f"{forwarder.address} keepalives_idle=77 connect_timeout=2"
    database = Database(replace(settings, database_url=address))
    with database.transaction() as transaction:
        parameters = transaction.connection.info.get_parameters()
    database.close()
    assert (parameters["keepalives_idle"], parameters["connect_timeout"]) == ("77", "2")
