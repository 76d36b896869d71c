"""`cms serve`: the embedded server where one is needed, the web server, and the end of both."""

from __future__ import annotations

import errno
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

import click

from cms.cli.session import database, expected, say
from cms.cli.setup import prepare
from cms.config import Config, ConfigError, secret_of
from cms.server import FAULT, READY

# The first signal asks, the second hurries, the third ends it.
STEPS = (signal.SIGTERM, signal.SIGQUIT, signal.SIGKILL)
HELD_FOR_SECONDS = 3.0
BACKLOG = 2048


def serve(config: Config) -> int:
    """Run the service until SIGTERM, SIGINT or a fault, stop all that was started, return the exit code."""
    stop = Stop()
    try:
        with _bound(config) as listener, database(config) as dsn:
            if not stop.asked:
                secret_of(config)  # one fault here is better than one in each worker
                prepare(dsn, config=config)
            return 0 if stop.asked else _run(config, dsn=dsn, listener=listener, stop=stop)
    except Exception as fault:
        if stop.asked and expected(fault):
            return 0  # a terminal's Ctrl-C also ended the program that made the database
        raise


class Stop:
    """The signals that ask for the end. They go on to the web server, and to nobody while there is none:
    a database that is just being made is stopped as soon as it can be.
    """

    def __init__(self) -> None:
        self.asked = 0
        self.web: subprocess.Popen[bytes] | None = None
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._take)

    def _take(self, number: int, frame: FrameType | None) -> None:
        self.asked += 1
        step = STEPS[min(self.asked, len(STEPS)) - 1]
        if self.web is not None:
            self.web.send_signal(step)
        elif step == signal.SIGTERM:
            os.write(2, b"Stopping as soon as the database can be left.\n")  # print is not safe in a handler
        elif step == signal.SIGKILL:
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)


def _run(config: Config, *, dsn: str, listener: socket.socket, stop: Stop) -> int:
    here, there = socket.socketpair()
    with here:
        with there, _told(config):
            listener.listen(BACKLOG)
            web = _start_web(listener, there, dsn=dsn)
        listener.close()  # the address is free as soon as the web server lets go of it
        stop.web = web
        if stop.asked:
            web.send_signal(signal.SIGTERM)
        fault = _announce(config, here)
        status = web.wait()
    stop.web = None
    _end_group(web.pid)
    if stop.asked or status == 0:
        return 0
    raise click.ClickException(fault or f"The web server ended by itself (status {status}).")


def _start_web(listener: socket.socket, line: socket.socket, *, dsn: str) -> subprocess.Popen[bytes]:
    """Start the web server in a session of its own, so that a terminal's Ctrl-C comes to this process only.

    Its module path is this process's: neither more nor fewer folders than `cms` itself was found in.
    """
    descriptors = (listener.fileno(), line.fileno())
    return subprocess.Popen(
        [sys.executable, "-P", "-m", "cms.server", *map(str, descriptors)],
        env=os.environ | {"DATABASE_URL": dsn, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        pass_fds=descriptors,
        stdin=subprocess.DEVNULL,
        start_new_session=True,
    )


def _announce(config: Config, line: socket.socket) -> str | None:
    """Print the address once a worker accepts; return the fault when none does."""
    with line.makefile(encoding="utf-8", newline="\n") as messages:
        message = messages.readline().rstrip("\n")
    if message == READY:
        say(f"The service answers at {_address(config)} (Ctrl-C stops it).")
    return message.removeprefix(FAULT) if message.startswith(FAULT) else None


def _end_group(leader: int) -> None:
    """End what a web server that was killed has left behind."""
    try:
        os.killpg(leader, signal.SIGKILL)
    except ProcessLookupError:
        return


def _address(config: Config) -> str:
    host = f"[{config.host}]" if ":" in config.host else config.host
    return f"http://{host}:{config.port}"


def _bound(config: Config) -> socket.socket:
    """Return a socket bound to HOST and PORT that does not listen yet: nobody is let in to wait.

    A server that has just been killed may hold the port for a moment, so it is tried for some seconds.
    """
    deadline = time.monotonic() + HELD_FOR_SECONDS
    while time.monotonic() < deadline:
        try:
            return _bind(config)
        except OSError as fault:
            if fault.errno != errno.EADDRINUSE:
                break
        time.sleep(0.2)
    with _told(config):
        return _bind(config)


@contextmanager
def _told(config: Config) -> Iterator[None]:
    try:
        yield
    except OSError as fault:
        raise ConfigError(f"HOST, PORT: cannot listen on {_address(config)}: {fault.strerror}.") from fault


def _bind(config: Config) -> socket.socket:
    family, kind, protocol, _, address = socket.getaddrinfo(
        config.host, config.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )[0]
    listener = socket.socket(family, kind, protocol)
    try:
        # Without it a port stays closed for minutes after the connections of the server before.
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
    except OSError:
        listener.close()
        raise
    return listener
