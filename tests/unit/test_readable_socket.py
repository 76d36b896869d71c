"""Asking a socket whether there is something to read."""

from __future__ import annotations

import socket

from cms.database.readable_socket import ReadableSocket


def test_a_socket_has_something_once_bytes_came_or_its_other_end_is_closed() -> None:
    near, far = socket.socketpair()
    with near, far:
        readable = ReadableSocket(near.fileno())
        assert not readable.has_something()
        far.send(b"a")
        assert readable.has_something()
        near.recv(1)
        assert not readable.has_something()
        far.close()
        assert readable.has_something()


def test_a_closed_descriptor_counts_as_an_end() -> None:
    near, far = socket.socketpair()
    readable = ReadableSocket(near.fileno())
    far.close()
    near.close()
    assert readable.has_something()
