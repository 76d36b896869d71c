"""Databases that the tests make go when they are done with them: each takes as much disk as an empty installation."""

from __future__ import annotations

import psycopg
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict, make_conninfo


def drop_database(dsn: str) -> None:
    """Drop the database that a dsn names, whoever is still connected."""
    name = sql.Identifier(str(conninfo_to_dict(dsn)["dbname"]))
    with psycopg.connect(make_conninfo(dsn, dbname="postgres"), autocommit=True) as connection:
        connection.execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(name))
