"""Exports have connections of their own: whoever reads one slowly takes none from anybody else."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from cms.config import Config
from cms.database.connections import max_streams
from cms.errors import Refused
from cms.extensions import OWN
from cms.items.read.prepare import ReadRequest
from cms.items.read.reads import read_list
from cms.items.transfer.export import BATCH_ROWS, export
from cms.store.identity import Identity
from cms.store.store import Store
from tests.client import Client
from tests.things import field, table


@pytest.fixture
def store(config: Config) -> Iterator[Store]:
    store = Store(config, hooks=OWN.store_hooks())
    yield store
    store.close()


@pytest.mark.release
def test_exports_that_nobody_reads_leave_reads_their_connections(
    store: Store, api: Client, config: Config
) -> None:
    things = table(api, field("name", "string"))
    things.add(*({"name": str(number)} for number in range(BATCH_ROWS + 1)))
    admin = Identity(user=api.get("/users/me").data["id"])

    def begun() -> Iterator[bytes]:
        return export(store, admin, ReadRequest(things.name, "limit=-1"), file_format="csv").chunks

    unread = [begun() for _ in range(max_streams(config.database_pool_size))]
    for _ in range(config.database_pool_size + 1):
        assert read_list(store, admin, ReadRequest(things.name, "limit=1"))
    with pytest.raises(Refused) as refused:
        begun()
    assert refused.value.status == 503
    for chunks in unread:
        assert sum(chunk.count(b"\n") for chunk in chunks) == BATCH_ROWS + 2
    assert b"".join(begun())
