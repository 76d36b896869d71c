"""`cms serve`: runs the database where needed, the web server and a worker, and stops them all."""

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

from cms.cli.auto_restart import WorkerProcess, start_module, watched_database
from cms.cli.session import DatabaseLost, is_expected, report_ready
from cms.cli.setup import prepare
from cms.config import Config, ConfigError
from cms.config.secret_file import secret_of
from cms.gunicorn_process import FAILED, READY, WORKER
from cms.logs import start_logging
from cms.text_shapes import url_host

# The first request to stop is gentle, the second is urgent, the third kills.
STEPS = (signal.SIGTERM, signal.SIGQUIT, signal.SIGKILL)
HURRY_COUNT = 2
GRACE_SECONDS = 9.0  # a worker takes no longer (`graceful_timeout`)
BIND_SECONDS = 3.0
BACKLOG = 2048
MAX_WAIT_SECONDS = 1.0


def serve(config: Config) -> int:
    """Run the service until SIGTERM, SIGINT or an error; return the exit code."""
    stop = StopSignals()
    start_logging(config)
    try:
        with _bind_with_retries(config) as listener, watched_database(config) as dsn:
            if not stop.count:
                secret_of(config)  # one error here is better than one in each worker
                prepare(dsn, config=config)
            # A signal may have come meanwhile; from here on it reaches the web server.
            if stop.count:
                return 0
            return _run(config, dsn=dsn, listener=listener, stop=stop)
    except Exception as error:
        if stop.count and is_expected(error) and not isinstance(error, DatabaseLost):
            return 0  # Ctrl-C in a terminal also ended the program that made the database
        raise


class StopSignals:
    """The signals that ask the service to stop.

    They are passed on to the running processes, the web server and the worker. Before these run,
    nothing is signalled: a database that is being made is stopped as soon as possible.
    """

    def __init__(self) -> None:
        self.count = 0
        self.running: tuple[subprocess.Popen[bytes] | WorkerProcess, ...] = ()
        self._wake, waker = socket.socketpair()
        waker.setblocking(False)
        # Detached, because the descriptor must stay open as long as signals may come.
        signal.set_wakeup_fd(waker.detach())
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._handle)
        # Under `nohup` the signal is ignored: the service is to outlive its terminal.
        if signal.getsignal(signal.SIGHUP) == signal.SIG_DFL:
            signal.signal(signal.SIGHUP, self._handle)
        # A handler, even an empty one, lets the end of a child interrupt `wait`.
        signal.signal(signal.SIGCHLD, lambda _number, _frame: None)

    def wait(self, *lines: socket.socket) -> bool:
        """Wait for a moment, a signal, or bytes on the lines; tell whether there are bytes.

        A signal that comes just before a blocking call does not interrupt it; here it leaves a byte
        to be read.
        """
        ready, _, _ = select.select([self._wake, *lines], [], [], MAX_WAIT_SECONDS)
        if self._wake in ready:
            self._wake.recv(READ_BYTES)
        return any(line in ready for line in lines)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        self.count += 1
        step = STEPS[min(self.count, len(STEPS)) - 1]
        for process in self.running:
            process.send_signal(step)
        if self.running:
            return
        if step == signal.SIGTERM:
            # print is not safe in a signal handler.
            os.write(2, b"Stopping as soon as the database can be left.\n")
        elif step == signal.SIGKILL:
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)


def _run(config: Config, *, dsn: str, listener: socket.socket, stop: StopSignals) -> int:
    # On this line the workers say when they are ready, or why they are not. It closes with this
    # process, however that ends, and the web server stops then.
    line, server_line = socket.socketpair()
    with line:
        with server_line, _listen_errors(config):
            # Two services can bind one address (SO_REUSEADDR): the second one fails here.
            listener.listen(BACKLOG)
            web = start_module(
                ("cms.gunicorn_process",), listener.fileno(), server_line.fileno(), dsn=dsn
            )
        listener.close()  # so that the address is free once the web server releases it
        reports = WorkerReports(line)
        worker = WorkerProcess(dsn)
        stop.running = (web, worker)
        try:
            # A signal that came before `running` was set has been sent to nobody.
            if stop.count:
                web.send_signal(signal.SIGTERM)
            message = _await_first_message(config, reports, stop)
            if message == READY:
                worker.start()  # only now: it would slow the start of the web server
            # The end of the web server is a signal as well (SIGCHLD), and ends the wait.
            while (status := web.poll()) is None:
                # Read although the content is not needed: on a full line new workers would have to
                # wait.
                if stop.wait(line):
                    reports.read()
        finally:
            worker.end()
            stop.running = ()
        _end_workers(reports, stop)
    if stop.count or status == 0:
        return 0
    reason = f"The web server ended by itself (status {status})."
    if message.startswith(FAILED):
        reason = message.removeprefix(FAILED) or reason
    raise click.ClickException(reason)


def _await_first_message(config: Config, reports: WorkerReports, stop: StopSignals) -> str:
    """Return the first message of a worker; print the address once one is ready.

    The message is empty if the web server ended without one.
    """
    message = ""
    while not message and not reports.is_closed:
        if stop.wait(reports.line):
            message = next(iter(reports.read()), "")
    if message == READY:
        report_ready(f"The service answers at {_address(config)}")
    return message


def _end_workers(reports: WorkerReports, stop: StopSignals) -> None:
    """Wait for the workers of a web server that was killed, and kill those that do not end.

    They stop by themselves, once they have answered the requests under way.
    """
    deadline = time.monotonic() + GRACE_SECONDS
    while not reports.is_closed:
        if time.monotonic() > deadline or stop.count >= HURRY_COUNT:
            reports.kill()
            return
        if stop.wait(reports.line):
            reports.read()
        reports.adopt()


def _address(config: Config) -> str:
    return f"http://{url_host(config.host)}:{config.port}"


def _bind_with_retries(config: Config) -> socket.socket:
    """Return a socket bound to HOST and PORT that does not listen yet, so that no client waits.

    A server that was just killed may hold the port for a moment, so binding is tried for some
    seconds.
    """
    deadline = time.monotonic() + BIND_SECONDS
    while time.monotonic() < deadline:
        try:
            return _bind(config)
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                break
        time.sleep(0.2)
    with _listen_errors(config):
        return _bind(config)


@contextmanager
def _listen_errors(config: Config) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise ConfigError(
            f"HOST, PORT: cannot listen on {_address(config)}: {error.strerror}."
        ) from error


def _bind(config: Config) -> socket.socket:
    # HOST may be a name, or an address of IPv4 or IPv6.
    family, kind, protocol, _, address = socket.getaddrinfo(
        config.host, config.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )[0]
    listener = socket.socket(family, kind, protocol)
    try:
        # Otherwise connections of an earlier server block the port for minutes.
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
    except OSError:
        listener.close()
        raise
    return listener


READ_BYTES = 4096


class WorkerReports:
    """Reads the line, and knows the workers that may be left when the web server was killed."""

    def __init__(self, line: socket.socket) -> None:
        self.line = line
        self.is_closed = False
        self._incomplete = b""
        self._workers: set[int] = set()

    def read(self) -> list[str]:
        """Wait for bytes; return the messages that they complete, but not those of new workers."""
        chunk = self.line.recv(READ_BYTES)
        self.is_closed = not chunk
        *lines, self._incomplete = (self._incomplete + chunk).split(b"\n")
        messages = []
        for line in lines:
            message = line.decode()
            if message.startswith(WORKER):
                # The numbers of ended ones will be those of other processes.
                self._workers = set(filter(_exists, self._workers))
                self._workers.add(int(message.removeprefix(WORKER)))
            else:
                messages.append(message)
        return messages

    def adopt(self) -> None:
        """Take note of workers that have ended, which this process adopts in a container."""
        for worker in self._workers:
            with suppress(ChildProcessError):
                os.waitpid(worker, os.WNOHANG)

    def kill(self) -> None:
        """End all workers that are left, and the processes that they have started."""
        for worker in self._workers:
            # Each has begun a session, and so leads a group.
            with suppress(ProcessLookupError):
                os.killpg(worker, signal.SIGKILL)


def _exists(process: int) -> bool:
    try:
        os.kill(process, 0)
    except (ProcessLookupError, PermissionError):
        return False
    return True
