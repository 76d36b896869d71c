"""Every fixed statement is one that the server takes, whichever of its versions that is."""

from __future__ import annotations

from typing import Any

import psycopg
from psycopg.pq import ExecStatus

from cms.database.statements import all_statements, statement

SEVERAL_COMMANDS = {"create_migrations_table", "create_queue_table"}
"""They begin every migration, so that the database has been made with them."""


def test_the_server_can_prepare_every_fixed_statement(
    migrated_connection: psycopg.Connection[tuple[Any, ...]],
) -> None:
    wire = migrated_connection.pgconn
    with migrated_connection.transaction():
        # A temporary table that other statements name; it goes with the transaction.
        wire.exec_(statement("create_seen_contents").encode())
        for name in sorted(all_statements().keys() - SEVERAL_COMMANDS):
            result = wire.prepare(b"", statement(name).encode())
            assert result.status == ExecStatus.COMMAND_OK, f"{name}: {result.get_error_message()}"
