"""How each session with PostgreSQL is set up, and what `cms doctor` reports of sessions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from types import MappingProxyType
from typing import Any

import psycopg
from psycopg.abc import Buffer
from psycopg.adapt import Loader
from psycopg.conninfo import conninfo_to_dict
from psycopg.pq import Format

from cms import jsontext
from cms.config import Config
from cms.database.error_mapping import mapped_errors
from cms.database.own_schema import check_schema, check_schema_async, schema_of
from cms.database.pools import LibraryPool
from cms.database.statement_meter import StatementMeter
from cms.database.statements import statement
from cms.database.wire import Connection, Epochs, Wire
from cms.errors import unavailable

CONNECT_SECONDS = 5
"""How long a connection to one host of an address may take, unless the address says so itself."""

_KEEPALIVES: Mapping[str, object] = MappingProxyType(
    {"keepalives_idle": 10, "keepalives_interval": 5, "keepalives_count": 3}
)
"""A machine that vanishes closes no connection: without these, threads wait hours for its answer.
"""

_UNANSWERED_MILLISECONDS = 30_000
"""How long the machine of a server may take to acknowledge sent data."""

CONNECTION_ARGUMENTS: Mapping[str, Any] = MappingProxyType(
    {
        # Transactions begin where `transaction()` says, and not with any first statement.
        "autocommit": True,
        # Statements have their parameters as $1, $2 …, as PostgreSQL itself writes them.
        "cursor_factory": psycopg.RawCursor,
    }
)
"""The arguments of every connection that runs statements of the service."""


class _RawJsonLoader(Loader):
    """Loads json as text that goes into an answer as it is."""

    format = Format.BINARY

    def load(self, data: Buffer) -> object:
        return jsontext.raw_json(bytes(data))


class _RawJsonbLoader(Loader):
    """Loads jsonb as text that goes into an answer as it is."""

    format = Format.BINARY

    def load(self, data: Buffer) -> object:
        # PostgreSQL sends the number of its format before the text.
        return jsontext.raw_json(bytes(data)[1:])


def configure(
    connection: Connection, *, epochs: Epochs, meter: StatementMeter, schema: str | None = None
) -> None:
    """Give a new connection its `Wire` and the loaders of JSON.

    Raises `Refused` unless it is in the schema of an installation, where one is named.
    """
    if schema is not None:
        check_schema(connection, schema)
    # After a DROP or a ROLLBACK psycopg deallocates all statements, ours included, if it prepares
    # any itself.
    connection.prepare_threshold = None
    connection.adapters.register_loader("json", _RawJsonLoader)
    connection.adapters.register_loader("jsonb", _RawJsonbLoader)
    connection.wire = Wire(connection, epochs, meter)


def session_settings(statement_timeout: timedelta, *, read_only: bool) -> dict[str, str]:
    """Return the settings of a session whose answers do not depend on those of the server."""
    return {
        "timezone": "UTC",
        "datestyle": "ISO",
        "intervalstyle": "iso_8601",
        "bytea_output": "hex",
        "extra_float_digits": "1",
        # Compiling takes longer than the statements, which have many conditions and few rows.
        "jit": "off",
        "statement_timeout": str(int(statement_timeout.total_seconds() * 1000)),
        "default_transaction_read_only": "on" if read_only else "off",
    }


def session_options(statement_timeout: timedelta, *, read_only: bool) -> str:
    """Return libpq's `options` for the settings of a session."""
    return options_of(session_settings(statement_timeout, read_only=read_only))


def options_of(settings: Mapping[str, str]) -> str:
    """Return libpq's `options` for some settings of PostgreSQL."""
    return " ".join(f"-c {name}={value}" for name, value in settings.items())


def address_arguments(
    dsn: str, options: str = "", *, in_pool: bool = False, read_only: bool = False
) -> dict[str, Any]:
    """Return the arguments with which to connect to an address, beside the address itself.

    `options` come after those of the address. All other settings of the address win.
    """
    try:
        address = conninfo_to_dict(dsn)
    except psycopg.ProgrammingError:
        # Without the driver's text, which quotes the address and with it the password.
        raise unavailable("database", "Its address is not well-formed") from None
    defaults = {"connect_timeout": CONNECT_SECONDS, **_KEEPALIVES}
    if in_pool:
        # Connections for whole tables have no such limit: it would also end a copy to a server that
        # reads slowly.
        defaults["tcp_user_timeout"] = _UNANSWERED_MILLISECONDS
    arguments = {name: value for name, value in defaults.items() if name not in address}
    # Of two values for one setting the last one counts, so the service's own come last.
    all_options = f"{address.get('options') or ''} {options}".strip()
    if all_options:
        arguments["options"] = all_options
    if read_only and address.get("target_session_attrs") == "read-write":
        # The session itself is read-only, which libpq would take for that of a replica.
        arguments["target_session_attrs"] = "primary"
    return arguments


def has_session(config: Config) -> bool:
    """Tell whether the connections of `pool_arguments` keep a session, with what it listens to.

    Behind a pooler that works by transactions they do not.
    """
    return config.database_prepare or config.database_direct_url is not None


def pool_arguments(config: Config) -> dict[str, Any]:
    """Return the arguments of a pool that a library opens, with sessions like those for writes."""
    dsn = config.database_direct_url or config.database_url or ""
    options = session_options(config.db_statement_timeout, read_only=False)
    return {
        "conninfo": dsn,
        "kwargs": {
            **address_arguments(dsn, options, in_pool=True),
            # The library runs its statements through psycopg, which prepares them itself.
            "prepare_threshold": 5 if has_session(config) else None,
        },
        "configure": partial(_configure_of_library, schema=schema_of(dsn)),
        "pool_factory": LibraryPool,
    }


async def _configure_of_library(connection: psycopg.AsyncConnection, *, schema: str | None) -> None:
    # Each of its statements is a transaction anyway: so it costs no BEGIN and no COMMIT.
    await connection.set_autocommit(True)
    if schema is not None:
        await check_schema_async(connection, schema)


# What `cms doctor` reports


@dataclass(frozen=True, slots=True)
class ServerInfo:
    """A server as the service's account sees it; `version` is a number, 140005 for 14.5."""

    version: int
    encoding: str
    connections: int
    installed: frozenset[str]
    """The extensions of this database."""
    available: frozenset[str]
    """The extensions that the server could install."""
    is_accent_sensitive: bool
    """Whether the service's searches distinguish letters with accents from those without."""


def examine_server(dsn: str) -> ServerInfo:
    """Return the properties of a server; raises `Refused` if it cannot be reached."""
    try:
        with psycopg.connect(
            dsn, connect_timeout=CONNECT_SECONDS, client_encoding="utf8"
        ) as connection:
            row = connection.execute(statement("examine_server").encode()).fetchone()
    except psycopg.ProgrammingError:
        # Without the driver's text, which quotes the address and with it the password.
        raise unavailable(
            "database", "Its address, or this account's rights on it, are wrong"
        ) from None
    except psycopg.Error as error:
        raise unavailable("database", str(error).splitlines()[0].rstrip(".")) from error
    assert row is not None
    version, encoding, connections, installed, available, is_accent_sensitive = row
    return ServerInfo(
        version,
        encoding,
        connections,
        frozenset(installed),
        frozenset(available),
        is_accent_sensitive,
    )


def different_settings(dsn: str, settings: Mapping[str, str]) -> list[str]:
    """Return those settings that a session asks for and does not get; raises `Refused`."""
    options = options_of(settings)
    with (
        mapped_errors(),
        psycopg.connect(
            dsn,
            cursor_factory=psycopg.RawCursor,
            **address_arguments(dsn, options),
        ) as connection,
    ):
        query = statement("find_session_settings").encode()
        present = dict(connection.execute(query, [list(settings)]).fetchall())
    different: list[str] = []
    for name, value in settings.items():
        # The style of dates is followed by the order of day and month, which ISO does not use.
        present_value, _, _ = present[name].partition(",")
        if present_value != value:
            different.append(name)
    return different
