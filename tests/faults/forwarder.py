"""An address whose connections go to a server that a test may change, as a moved name or address
does.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

from psycopg.conninfo import conninfo_to_dict, make_conninfo


@dataclass
class Forwarder:
    """Passes bytes on between clients and the socket of a PostgreSQL server.

    Connections that are open stay with their server when the `target` changes.
    """

    target: str
    listener: socket.socket
    threads: list[threading.Thread] = field(default_factory=list)
    clients: list[socket.socket] = field(default_factory=list)

    @property
    def address(self) -> str:
        host, port = self.listener.getsockname()
        return make_conninfo(self.target, host=host, port=port)

    def hang_up(self) -> None:
        """End all connections."""
        for client in self.clients:
            with suppress(OSError):
                client.shutdown(socket.SHUT_RDWR)
        for thread in self.threads:
            thread.join()

    def accept(self) -> None:
        """Take connections until the listener is closed."""
        with suppress(OSError):
            while True:
                client = self.listener.accept()[0]
                parts = conninfo_to_dict(self.target)
                server = socket.socket(socket.AF_UNIX)
                server.connect(f"{parts['host']}/.s.PGSQL.{parts['port']}")
                thread = threading.Thread(target=_connect_both, args=(client, server))
                thread.start()
                self.clients.append(client)
                self.threads.append(thread)


def _connect_both(client: socket.socket, server: socket.socket) -> None:
    """Pass bytes on in both directions until one end hangs up."""
    with client, server:
        backwards = threading.Thread(target=_pass_on, args=(server, client))
        backwards.start()
        _pass_on(client, server)
        backwards.join()


def _pass_on(source: socket.socket, sink: socket.socket) -> None:
    with suppress(OSError):
        while data := source.recv(65536):
            sink.sendall(data)
    for end in (source, sink):
        with suppress(OSError):
            end.shutdown(socket.SHUT_RDWR)


@contextmanager
def forwarding(target: str) -> Iterator[Forwarder]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        forwarder = Forwarder(target, listener)
        accepting = threading.Thread(target=forwarder.accept, daemon=True)
        accepting.start()
        try:
            yield forwarder
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            accepting.join()
            forwarder.hang_up()
