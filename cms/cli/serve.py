"""`cms serve`: the embedded server where one is needed, the web server, a worker, and the end of them all."""

from __future__ import annotations

import errno
import os
import select
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import FrameType

import click

from cms.cli.session import DatabaseLost, is_expected, say, watched_database
from cms.cli.setup import prepare
from cms.cli.worker_process import WorkerProcess, start_module
from cms.config import Config, ConfigError, secret_of
from cms.server import FAULT, READY

# The first signal asks, the second hurries, the third ends it.
STEPS = (signal.SIGTERM, signal.SIGQUIT, signal.SIGKILL)
HURRY_COUNT = 2
GRACE_SECONDS = 9.0  # a worker takes no longer (`graceful_timeout`)
BIND_SECONDS = 3.0
BACKLOG = 2048
READ_BYTES = 4096
MAX_WAIT_SECONDS = 1.0


def serve(config: Config) -> int:
    """Run the service until SIGTERM, SIGINT or a fault, stop all that was started, return the exit code."""
    stop = StopSignals()
    try:
        with _bind_with_retries(config) as listener, watched_database(config) as dsn:
            if not stop.count:
                secret_of(config)  # one fault here is better than one in each worker
                prepare(dsn, config=config)
            return 0 if stop.count else _run(config, dsn=dsn, listener=listener, stop=stop)
    except Exception as fault:
        if stop.count and is_expected(fault) and not isinstance(fault, DatabaseLost):
            return 0  # a terminal's Ctrl-C also ended the program that made the database
        raise


class StopSignals:
    """The signals that ask for the end. They go on to what runs, the web server and the worker, and to nobody
    before: a database that is just being made is stopped as soon as it can be.
    """

    def __init__(self) -> None:
        self.count = 0
        self.running: tuple[subprocess.Popen[bytes] | WorkerProcess, ...] = ()
        self._wake, waker = socket.socketpair()
        waker.setblocking(False)
        signal.set_wakeup_fd(waker.detach())
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._handle)
        if (
            signal.getsignal(signal.SIGHUP) == signal.SIG_DFL
        ):  # else `nohup` wants it to outlive its terminal
            signal.signal(signal.SIGHUP, self._handle)
        signal.signal(
            signal.SIGCHLD, lambda _number, _frame: None
        )  # the end of a child ends a rest too

    def wait(self, *lines: socket.socket) -> bool:
        """Wait for a signal or a moment, or for something on the lines, and tell whether there is something on them.

        A signal that comes just before a blocking call does not interrupt it; here it leaves a byte to be read.
        """
        ready, _, _ = select.select([self._wake, *lines], [], [], MAX_WAIT_SECONDS)
        if self._wake in ready:
            self._wake.recv(READ_BYTES)
        return any(line in ready for line in lines)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        self.count += 1
        step = STEPS[min(self.count, len(STEPS)) - 1]
        for one in self.running:
            one.send_signal(step)
        if self.running:
            return
        if step == signal.SIGTERM:
            os.write(
                2, b"Stopping as soon as the database can be left.\n"
            )  # print is not safe in a handler
        elif step == signal.SIGKILL:
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)


def _run(config: Config, *, dsn: str, listener: socket.socket, stop: StopSignals) -> int:
    here, there = socket.socketpair()
    with here:
        with there, _listen_errors(config):
            listener.listen(BACKLOG)
            web = start_module(("cms.server",), listener.fileno(), there.fileno(), dsn=dsn)
        listener.close()  # the address is free as soon as the web server lets go of it
        background = WorkerProcess(dsn)
        stop.running = web, background
        try:
            if stop.count:
                web.send_signal(signal.SIGTERM)
            message = _await_first_message(config, here, stop)
            if message == READY:
                background.start()  # not before, as it would only take time from the web server's start
            while (status := web.poll()) is None:
                stop.wait()
        finally:
            background.end()
            stop.running = ()
    _end_group(web.pid, stop)
    if stop.count or status == 0:
        return 0
    fault = message.removeprefix(FAULT) if message.startswith(FAULT) else None
    raise click.ClickException(fault or f"The web server ended by itself (status {status}).")


def _await_first_message(config: Config, line: socket.socket, stop: StopSignals) -> str:
    """Return the web server's first message, and print the address when it is that a worker accepts."""
    received = b""
    while b"\n" not in received:
        if stop.wait(line):
            more = line.recv(READ_BYTES)
            if not more:
                break
            received += more
    message = received.decode().partition("\n")[0]
    if message == READY:
        say(f"The service answers at {_address(config)} (Ctrl-C stops it).")
    return message


def _end_group(leader: int, stop: StopSignals) -> None:
    """End what a web server that was killed has left behind; requests under way are answered first."""
    deadline = time.monotonic() + GRACE_SECONDS
    with suppress(ProcessLookupError):
        os.killpg(leader, signal.SIGTERM)
        while time.monotonic() < deadline and stop.count < HURRY_COUNT:
            with suppress(ChildProcessError):
                os.waitpid(-leader, os.WNOHANG)  # in a container this process adopts orphans
            os.killpg(leader, 0)
            time.sleep(0.05)
        os.killpg(leader, signal.SIGKILL)


def _address(config: Config) -> str:
    host = f"[{config.host}]" if ":" in config.host else config.host
    return f"http://{host}:{config.port}"


def _bind_with_retries(config: Config) -> socket.socket:
    """Return a socket bound to HOST and PORT that does not listen yet: nobody is let in to wait.

    A server that has just been killed may hold the port for a moment, so it is tried for some seconds.
    """
    deadline = time.monotonic() + BIND_SECONDS
    while time.monotonic() < deadline:
        try:
            return _bind(config)
        except OSError as fault:
            if fault.errno != errno.EADDRINUSE:
                break
        time.sleep(0.2)
    with _listen_errors(config):
        return _bind(config)


@contextmanager
def _listen_errors(config: Config) -> Iterator[None]:
    try:
        yield
    except OSError as fault:
        raise ConfigError(
            f"HOST, PORT: cannot listen on {_address(config)}: {fault.strerror}."
        ) from fault


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
