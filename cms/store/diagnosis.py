"""Look at a server the way `cms doctor` tells it."""

from __future__ import annotations

from dataclasses import dataclass

import psycopg

from cms.errors import unavailable
from cms.store.statements import statement


@dataclass(frozen=True, slots=True)
class Server:
    """A server as its account sees it; `version` is its number, 140005 for 14.5."""

    version: int
    encoding: str
    connections: int
    installed: frozenset[str]
    available: frozenset[str]
    keeps_accents: bool
    """Whether the searches of the service tell accents apart."""


def examine(dsn: str) -> Server:
    """Return what a server says about itself; raises `Refused` when it cannot be asked."""
    try:
        with psycopg.connect(dsn, connect_timeout=5, client_encoding="utf8") as connection:
            row = connection.execute(statement("examine_server").encode()).fetchone()
    except psycopg.ProgrammingError:
        # Without the driver's text, which quotes the address and with it the password.
        raise unavailable("database", "Its address, or this account's rights on it, are wrong") from None
    except psycopg.Error as fault:
        raise unavailable("database", str(fault).splitlines()[0].rstrip(".")) from fault
    assert row is not None
    version, encoding, connections, installed, available, keeps_accents = row
    return Server(version, encoding, connections, frozenset(installed), frozenset(available), keeps_accents)
