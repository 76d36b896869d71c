"""Asking a descriptor whether it can be read or written."""

from __future__ import annotations

import select
import socket

from cms.processes.polled_descriptor import PolledDescriptor
from tests.full_pipes import full_pipe


def test_a_socket_is_readable_once_bytes_came_or_its_other_end_is_closed() -> None:
    near, far = socket.socketpair()
    with near, far:
        readable = PolledDescriptor(near.fileno(), select.POLLIN)
        assert not readable.is_ready()
        far.send(b"a")
        assert readable.is_ready()
        near.recv(1)
        assert not readable.is_ready()
        far.close()
        assert readable.is_ready()


def test_a_closed_descriptor_counts_as_an_end() -> None:
    near, far = socket.socketpair()
    readable = PolledDescriptor(near.fileno(), select.POLLIN)
    far.close()
    near.close()
    assert readable.is_ready()


def test_a_pipe_is_writable_until_it_is_full_and_once_nobody_can_read_it() -> None:
    with full_pipe() as pipe:
        writable = PolledDescriptor(pipe.write_end, select.POLLOUT)
        assert not writable.is_ready()
        pipe.empty()
        assert writable.is_ready()
