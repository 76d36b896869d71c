"""A real `cms serve` in a process of its own, and what it leaves behind."""

from __future__ import annotations

import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import psutil

from tests.waiting import eventually

TIMEOUT_SECONDS = 60.0  # a machine that runs other tests beside these is slow
PORTS = (20_000, 32_000)  # below those that connections get
ANSWERS = "The service answers at "


@dataclass(frozen=True, slots=True)
class Service:
    """A process of `cms serve` that leads a group of its own, as one that a terminal has
    started.
    """

    process: subprocess.Popen[bytes]
    output: Path
    folder: Path
    port: int

    def log_text(self) -> str:
        return self.output.read_text()

    def await_words(self, words: str) -> None:
        self.await_words_after("", words)

    def await_words_after(self, before: str, words: str) -> None:
        """Wait until it has printed these words after the text `before`."""

        def has_printed() -> bool:
            has_ended = self.process.poll() is not None
            is_printed = words in self.log_text().removeprefix(before)
            assert is_printed or not has_ended, f"it did not print {words!r}:\n{self.log_text()}"
            return is_printed

        eventually(has_printed, otherwise=lambda: f"no {words!r} in\n{self.log_text()}")

    def signal_group(self, number: signal.Signals) -> None:
        os.killpg(self.process.pid, number)

    def wait_for_exit(self) -> int:
        """Return its exit code, once it has one."""
        return self.process.wait(TIMEOUT_SECONDS)


def environment(folder: Path, port: int, **more: str) -> dict[str, str]:
    """Return the environment of this process without settings of the
    service, with those of a test in it.
    """
    ours = {name: value for name, value in os.environ.items() if name not in SET_OUTSIDE}
    return ours | {
        "PORT": str(port),
        "DATA_DIR": str(folder / "data"),
        "WEB_CONCURRENCY": "1",
        "RATE_LIMITER_ENABLED": "false",
        **more,
    }


SET_OUTSIDE = frozenset(
    {
        "DATABASE_URL",
        "DATABASE_READ_URL",
        "DATABASE_DIRECT_URL",
        "SECRET",
        "ADMIN_EMAIL",
        "ADMIN_PASSWORD",
        "HOST",
    }
)


def command(folder: Path, *words: str, **environ: str) -> subprocess.CompletedProcess[str]:
    """Run `cms` with these words to its end; standard error is in the output."""
    return _run(folder, *words, errors=subprocess.STDOUT, **environ)


def command_apart(folder: Path, *words: str, **environ: str) -> subprocess.CompletedProcess[str]:
    """Run `cms` with these words to its end; what it printed and what
    its messages are apart.
    """
    return _run(folder, *words, errors=subprocess.PIPE, **environ)


def command_fed(
    folder: Path, *words: str, fed: str, **environ: str
) -> subprocess.CompletedProcess[str]:
    """Run `cms` with these words and something to read on standard input, as `command_apart`
    does.
    """
    return _run(folder, *words, errors=subprocess.PIPE, fed=fed, **environ)


def _run(
    folder: Path, *words: str, errors: int, fed: str | None = None, **environ: str
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "cms", *words],
        cwd=folder,
        env=environment(folder, free_port(), **environ),
        stdin=subprocess.DEVNULL if fed is None else None,
        input=fed,
        stdout=subprocess.PIPE,
        stderr=errors,
        text=True,
        start_new_session=True,  # away from a terminal, of which a password would be asked
        timeout=TIMEOUT_SECONDS,
        check=False,
    )


@contextmanager
def serving(folder: Path, *, python: str = sys.executable, **environ: str) -> Iterator[Service]:
    """Start `cms serve` in a folder; yield it once it answers, and end it if the test has not."""
    with starting(folder, python=python, **environ) as service:
        service.await_words(ANSWERS)
        yield service


@contextmanager
def starting(folder: Path, *, python: str = sys.executable, **environ: str) -> Iterator[Service]:
    """Start `cms serve` in a folder and yield it at once."""
    port = int(environ.pop("PORT", "0")) or free_port()
    with tempfile.NamedTemporaryFile(prefix="cms-output-") as output:
        process = subprocess.Popen(
            [python, "-m", "cms", "serve"],
            cwd=folder,
            env=environment(folder, port, **environ),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            preexec_fn=_heed_hangups,
        )
        try:
            yield Service(process, Path(output.name), folder, port)
        finally:
            if process.poll() is None:
                process.terminate()
                process.wait(TIMEOUT_SECONDS)


def _heed_hangups() -> None:
    """Undo what nohup has done to this process, as a terminal starts its programs."""
    signal.signal(signal.SIGHUP, signal.SIG_DFL)


def free_port() -> int:
    """Return a port that is free, and that the system gives to nobody until a server takes it."""
    while True:
        port = PORTS[0] + secrets.randbelow(PORTS[1] - PORTS[0])
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port


@contextmanager
def new_folder() -> Iterator[Path]:
    """Make a folder with a space in its name that every account may
    enter, as a home folder usually is.

    Pytest's own folders are private, which moves an embedded server
    that root starts to another place.
    """
    folder = Path(tempfile.mkdtemp(prefix="cms smoke "))
    folder.chmod(0o755)
    try:
        yield folder
    finally:
        shutil.rmtree(folder)


def processes_of(folder: Path) -> list[str]:
    """Return the command lines of what runs in a folder or with its
    settings: web server, database, all.
    """
    return [" ".join(one.cmdline()) for one in psutil.process_iter() if is_of(one, folder)]


def is_of(process: psutil.Process, folder: Path) -> bool:
    try:
        if process.pid == os.getpid() or process.status() == psutil.STATUS_ZOMBIE:
            return False
        words = [*process.cmdline(), *process.environ().values(), process.cwd()]
    except (psutil.NoSuchProcess, psutil.AccessDenied):
        return False  # gone meanwhile, or of another user, who runs nothing of ours
    return any(str(folder) in word for word in words)


def await_gone(folder: Path) -> None:
    """Wait until nothing runs in a folder any more, not even processes that nobody waits for."""
    eventually(lambda: not processes_of(folder), otherwise=lambda: processes_of(folder))
