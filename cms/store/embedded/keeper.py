"""A small process between the server and its users; run as a script, it needs only the standard library.

It is the server's parent, outlives whoever started it, and stops the server when the last user is gone
without a word (SIGKILL, a crash): the kernel drops that user's lock, for which the keeper waits.
A terminal's Ctrl-C and a hang-up reach neither it nor the server.
"""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import sys
from threading import Thread

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)


def main(arguments: list[str]) -> None:
    """Start a server and stay until it ends.

    Arguments: the descriptor of the lock that the server inherits, the lock that its users share, the file
    for what it says before its log is open, the ids to run as or `-` for ours, a folder to remove in the
    end or `-`, then the command.
    """
    lock, shared, early_log, ids, scratch, *command = arguments
    if os.fork():
        return
    server = start(command, int(lock), early_log=early_log, ids=ids)
    detach()
    Thread(target=stop_when_unused, args=(server, shared), daemon=True).start()
    server.wait()
    if scratch != "-":
        clear(scratch)


def start(command: list[str], lock: int, *, early_log: str, ids: str) -> subprocess.Popen[bytes]:
    user, group = (None, None) if ids == "-" else map(int, ids.split(":"))
    for number in SIGNALS:  # a server born deaf, by a starter in the background, misses an early request to stop
        signal.signal(number, signal.SIG_DFL)
    with open(early_log, "xb") as output:
        server = subprocess.Popen(
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
    os.close(lock)
    return server


def detach() -> None:
    """Let go of the starter, who waits for the end of our output, and ignore requests to stop early."""
    for number in SIGNALS:
        signal.signal(number, signal.SIG_IGN)
    nowhere = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(nowhere, descriptor)


def stop_when_unused(server: subprocess.Popen[bytes], shared: str) -> None:
    """Hold the users' lock alone once the last user is gone: a newcomer waits for the server's end."""
    fcntl.flock(os.open(shared, os.O_RDWR | os.O_NOFOLLOW), fcntl.LOCK_EX)
    server.send_signal(signal.SIGINT)


def clear(folder: str) -> None:
    """Remove the folder of the socket, with what a killed server left in it."""
    for name in os.listdir(folder):
        os.unlink(os.path.join(folder, name))
    os.rmdir(folder)


if __name__ == "__main__":
    main(sys.argv[1:])
