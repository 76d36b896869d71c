"""The schema of an installation: several of them may share one database (docs/deployment.md)."""

from __future__ import annotations

import re
from typing import Any

import psycopg
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict

from cms.database.statements import statement
from cms.errors import unavailable

_OPTIONS = re.compile(r"-csearch_path=([a-z_][a-z0-9_]*),public")


def schema_of(dsn: str) -> str | None:
    """Return the schema that DATABASE_SCHEMA has put into an address (`in_schema`).

    None for all other options: in a search path that somebody has written, other schemas may come
    before the service's.
    """
    match = _OPTIONS.fullmatch(str(conninfo_to_dict(dsn).get("options") or ""))
    if match is None:
        return None
    return match[1]


def has_schema(connection: psycopg.Connection[Any], schema: str) -> bool:
    """Tell whether there is a schema of this name."""
    query = statement("has_schema").encode()
    return psycopg.RawCursor(connection).execute(query, (schema,)).fetchone() == (True,)


def create_schema(connection: psycopg.Connection[Any], schema: str) -> None:
    """Create a schema where it is missing.

    Raises `Refused` SERVICE_UNAVAILABLE for the name of the role, where `public` has an
    installation of this role: by default PostgreSQL looks into the schema of that name first, so
    that the installation would read and write the tables there.
    """
    # IF NOT EXISTS would need the right to make one even where it is there.
    if has_schema(connection, schema):
        return
    query = statement("hides_public").encode()
    if psycopg.RawCursor(connection).execute(query, (schema,)).fetchone() == (True,):
        raise unavailable(
            "database",
            f'A schema "{schema}" has the name of its PostgreSQL role, and would hide the '
            "installation in the schema public. Give DATABASE_SCHEMA another value",
        )
    connection.execute(sql.SQL("CREATE SCHEMA IF NOT EXISTS {}").format(sql.Identifier(schema)))


def check_schema(
    connection: psycopg.Connection[Any], schema: str, *, needs_tables: bool = True
) -> None:
    """Raise `Refused` where a session is not in this schema, or finds no installation there.

    A pooler may leave out the options of an address. The session would then be in the schema of
    another installation, and would find its tables behind a schema that has none, too.
    """
    query = statement("find_installation").encode()
    row = psycopg.RawCursor(connection).execute(query).fetchone()
    _require_installation(row, schema, needs_tables=needs_tables)


async def check_schema_async(connection: psycopg.AsyncConnection[Any], schema: str) -> None:
    """Do what `check_schema` does, for the session of a library that is asynchronous."""
    query = statement("find_installation").encode()
    cursor = await psycopg.AsyncRawCursor(connection).execute(query)
    _require_installation(await cursor.fetchone(), schema, needs_tables=True)


def _require_installation(row: tuple[Any, ...] | None, schema: str, *, needs_tables: bool) -> None:
    present, has_tables = row or (None, False)
    if present != schema:
        raise unavailable(
            "database",
            f"The session is in the schema {present}, not in {schema}. Run `cms migrate`; if a "
            "pooler leaves out search_path, set it for the role, as docs/deployment.md says",
        )
    if needs_tables and not has_tables:
        raise unavailable("database", f"The schema {schema} has no tables yet: run `cms migrate`")
