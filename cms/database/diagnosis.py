"""The properties of a server that `cms doctor` reports."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import psycopg

from cms.database.error_mapping import mapped_errors
from cms.database.session_setup import CONNECT_SECONDS, address_arguments, options_of
from cms.database.statements import statement
from cms.errors import unavailable


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
