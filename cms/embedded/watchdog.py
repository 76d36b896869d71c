"""A small process between the server and its users: a script that needs no other package.

It is the server's parent and outlives the process that started it. When the last user ends without
stopping the server (SIGKILL, a crash), the kernel releases that user's lock, for which the watchdog
waits to stop the server. When the server itself is killed, the watchdog ends the processes that it
leaves behind, so that it can start again at once. A terminal's Ctrl-C and a hang-up reach neither.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from threading import Thread

PR_SET_CHILD_SUBREAPER = 36
TIMEOUT_SECONDS = 5.0

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)


def main(arguments: list[str]) -> None:
    """Start a server and stay until it ends.

    Arguments: the descriptor of the lock that the server inherits, the lock that its users share,
    the file for its output before its log is open, the ids to run as or `-` for ours, a folder to
    remove in the end or `-`, then the command.
    """
    lock, shared, early_log, ids, scratch, *command = arguments
    # The parent ends at once, so that the starter has no child that it would have to await.
    if os.fork():
        return
    adopt_orphans()
    server = start(command, int(lock), early_log=early_log, ids=ids)
    detach()
    Thread(target=stop_when_unused, args=(server, shared), daemon=True).start()
    server.wait()
    end_orphans()
    if scratch != "-":
        remove_folder(scratch)
    # Only now: the next server may have a folder of the same name.
    os.close(int(lock))


def start(command: list[str], lock: int, *, early_log: str, ids: str) -> subprocess.Popen[bytes]:
    user = None
    group = None
    if ids != "-":
        user, group = map(int, ids.split(":"))
    # A starter in the background may ignore signals; a server that inherited this would not stop.
    for number in SIGNALS:
        signal.signal(number, signal.SIG_DFL)
    with open(early_log, "xb") as output:
        return subprocess.Popen(
            command,
            cwd="/",
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            pass_fds=[lock],
            user=user,
            group=group,
            extra_groups=None if user is None else [],
        )


def detach() -> None:
    """Close the output, for whose end the starter waits, and ignore signals to stop."""
    for number in SIGNALS:
        signal.signal(number, signal.SIG_IGN)
    null = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(null, descriptor)


def stop_when_unused(server: subprocess.Popen[bytes], shared: str) -> None:
    """Stop the server after its last user; a new user waits, as the lock is held alone then."""
    fcntl.flock(os.open(shared, os.O_RDWR | os.O_NOFOLLOW), fcntl.LOCK_EX)
    server.send_signal(signal.SIGINT)


def adopt_orphans() -> None:
    """Become the parent of the server's processes when the server dies; only Linux can do so."""
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def end_orphans() -> None:
    """End the processes of a killed server: one that runs a long statement does not notice.

    As long as one of them lives, PostgreSQL does not start on the same data.
    """
    deadline = time.monotonic() + TIMEOUT_SECONDS
    with suppress(ChildProcessError):
        while True:
            # To PostgreSQL's processes SIGQUIT means: end now, without cleaning up.
            number = signal.SIGQUIT if time.monotonic() < deadline else signal.SIGKILL
            for orphan in child_processes():
                with suppress(ProcessLookupError):
                    os.kill(orphan, number)
            time.sleep(0.01)
            # It raises ChildProcessError when no child is left, which ends both loops.
            while os.waitpid(-1, os.WNOHANG)[0]:
                continue


def child_processes() -> Iterator[int]:
    """Yield the numbers of the processes whose parent is this one, from /proc."""
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            # Behind the program's name, which is in parentheses and may contain anything.
            fields = stat.read_text(errors="replace").rpartition(")")[2].split()
            # The state of the process, and then its parent.
            if int(fields[1]) == os.getpid():
                yield int(stat.parent.name)


def remove_folder(folder: str) -> None:
    """Remove the folder of the socket, with what a killed server left in it."""
    for name in os.listdir(folder):
        os.unlink(os.path.join(folder, name))
    os.rmdir(folder)


if __name__ == "__main__":
    main(sys.argv[1:])
