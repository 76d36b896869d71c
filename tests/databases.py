"""What tests do to whole databases: send everybody away, and drop them, for each takes as much as an empty one."""

from __future__ import annotations

import psycopg
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict, make_conninfo


def end_connections(dsn: str) -> None:
    """End every other connection to the database and wait until they are gone, as after a restart."""
    with psycopg.connect(dsn, autocommit=True) as connection:
        others = (
            "FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
        )
        # Without a time to wait it only sends a signal, and who asks next may still be answered.
        ended = connection.execute(f"SELECT pg_terminate_backend(pid, 60000) {others}").fetchall()
    assert all(gone for (gone,) in ended)


def drop_database(dsn: str) -> None:
    """Drop the database that a dsn names, whoever is still connected."""
    name = sql.Identifier(str(conninfo_to_dict(dsn)["dbname"]))
    with psycopg.connect(make_conninfo(dsn, dbname="postgres"), autocommit=True) as connection:
        connection.execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(name))
