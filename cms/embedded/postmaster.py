"""The process that serves a cluster and its address, by the file `postmaster.pid`."""

from __future__ import annotations

import socket
from dataclasses import dataclass
from pathlib import Path

from psycopg.conninfo import make_conninfo

from cms.embedded.cluster import SUPERUSER

PORT = "5432"  # part of the name of the socket; no network port is opened


@dataclass(frozen=True, slots=True)
class Postmaster:
    """The contents of `postmaster.pid`; the server may have ended."""

    pid: int
    cluster: str
    port: str
    sockets: str

    def conninfo(self, database: str) -> str:
        return make_conninfo("", host=self.sockets, port=self.port, user=SUPERUSER, dbname=database)


def read_postmaster(cluster: Path) -> Postmaster | None:
    """Return the contents of `postmaster.pid`, None if it is missing or incomplete."""
    try:
        lines = (cluster / "postmaster.pid").read_text(errors="surrogateescape").splitlines()
    except FileNotFoundError:
        return None
    # The server adds lines as it starts. Of a single-user server the number is negative.
    if len(lines) < 6 or not lines[0].isdigit():
        return None
    # Below follow the network address, the key of the shared memory, and the status.
    pid, folder, _started, port, sockets, *_rest = lines
    return Postmaster(int(pid), folder, port, sockets)


def is_listening(postmaster: Postmaster) -> bool:
    """Tell whether the postmaster itself lives: its children do not listen."""
    with socket.socket(socket.AF_UNIX) as client:
        return client.connect_ex(f"{postmaster.sockets}/.s.PGSQL.{postmaster.port}") == 0
