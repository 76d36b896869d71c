"""The connections of the queue's library: alive when they are used, and not checked each time."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from cms.database import pools
from cms.database.pools import LibraryPool
from cms.jobs.queue import queue_of
from tests.databases import end_connections
from tests.queues import QueueDatabase

PROCESS = "SELECT pg_backend_pid() AS process"


async def _processes(queue: QueueDatabase, *, times: int, ends_between: bool = False) -> list[int]:
    """Return the server processes that run a statement of the library again and again."""
    processes = []
    async with queue_of(queue.config, []).open_async() as app:
        for _ in range(times):
            row: dict[str, Any] = await app.connector.execute_query_one_async(PROCESS)
            processes.append(row["process"])
            if ends_between:
                end_connections(queue.dsn)
    return processes


def test_a_connection_is_checked_once_for_many_statements(
    queue: QueueDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    checks = []
    check = LibraryPool.check_connection

    async def counted(connection: Any) -> None:
        checks.append(connection)
        await check(connection)

    monkeypatch.setattr(LibraryPool, "check_connection", staticmethod(counted))
    processes = asyncio.run(_processes(queue, times=20))
    assert len(set(processes)) == 1
    assert len(checks) == 1


@pytest.mark.release
def test_a_connection_that_has_ended_is_replaced(
    queue: QueueDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pools, "CHECK_SECONDS", 0)
    processes = asyncio.run(_processes(queue, times=3, ends_between=True))
    assert len(set(processes)) == 3


def test_statements_of_the_library_are_in_no_transaction(queue: QueueDatabase) -> None:
    async def is_in_transaction() -> bool:
        async with queue_of(queue.config, []).open_async() as app:
            row = await app.connector.execute_query_one_async(
                "SELECT now() <> statement_timestamp() AS answer"
            )
            return bool(row["answer"])

    assert not asyncio.run(is_in_transaction())
