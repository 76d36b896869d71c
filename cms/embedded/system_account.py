"""The system account that runs the server: PostgreSQL refuses to run as root."""

from __future__ import annotations

import os
import pwd
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cms.embedded import EmbeddedError

ACCOUNTS_FOR_ROOT = ("postgres", "nobody")

# With these, programs and their libraries are found, and temporary files.
INHERITED_VARIABLES = ("PATH", "TMPDIR", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH")


@dataclass(frozen=True, slots=True)
class SystemAccount:
    """An account by its name and ids."""

    name: str
    uid: int
    gid: int

    @property
    def as_subject(self) -> str:
        """How a sentence begins about the account that runs the server."""
        return f"The database server runs as {self.name}, who"

    @property
    def is_own(self) -> bool:
        return self.uid == os.geteuid()


def own_account() -> SystemAccount:
    return SystemAccount(_name_of(os.geteuid()), os.geteuid(), os.getegid())


def server_account(cluster: Path) -> SystemAccount:
    """Return the account that serves `cluster`: its owner, or the one for new data.

    Raises `EmbeddedError` when this process cannot act as that account.
    """
    if not cluster.exists():
        return account_for_new_data()
    # PostgreSQL serves no data that belongs to another account than its own.
    owner = cluster.stat()
    account = SystemAccount(_name_of(owner.st_uid), owner.st_uid, owner.st_gid)
    if account.uid == 0:
        raise EmbeddedError(
            f"{cluster} belongs to root, as which PostgreSQL does not run. "
            f"Give it to an account of its own: chown -R nobody '{cluster}'."
        )
    if os.geteuid() not in (0, account.uid):
        raise EmbeddedError(
            f"{cluster} belongs to {account.name}. "
            f"Start as {account.name} or as root, or set another DATA_DIR."
        )
    return account


def can_enter(account: SystemAccount, folder: Path) -> bool:
    """Tell whether `account` may enter `folder`; asks the kernel, which alone knows every rule."""
    return run_as(account, ["/bin/sh", "-c", 'test -x "$0"', folder]).returncode == 0


def run_as(
    account: SystemAccount, command: Sequence[str | Path], *, inherited: Sequence[int] = ()
) -> subprocess.CompletedProcess[str]:
    """Run a command as `account` and return its result; a failure of the command is not raised.

    The working folder is `/`, because the account may not be able to enter the current one. The
    command inherits the descriptors `inherited`.
    """
    # Nothing is set for this process's own account: only root may set groups.
    identity: dict[str, Any] = {}
    if not account.is_own:
        # An empty list, without which root's groups would stay.
        identity = {"user": account.uid, "group": account.gid, "extra_groups": []}
    return subprocess.run(
        [str(argument) for argument in command],
        cwd="/",
        env=plain_environment(),
        pass_fds=inherited,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        encoding="utf-8",
        errors="replace",
        **identity,
    )


def plain_environment() -> Mapping[str, str]:
    """Return the environment of every program that is started here.

    It holds no secret of the service, which the server's account could read, and no `PG*` variable,
    which would change what the programs do. Without a locale macOS starts a thread in the server,
    which then refuses to run.
    """
    inherited_variables = {
        name: os.environ[name] for name in INHERITED_VARIABLES if name in os.environ
    }
    return {"PATH": os.defpath, **inherited_variables, "LC_ALL": "C"}


def account_for_new_data() -> SystemAccount:
    """Return the account of this process; for root the first of `ACCOUNTS_FOR_ROOT` that exists."""
    if os.geteuid():
        return own_account()
    for name in ACCOUNTS_FOR_ROOT:
        try:
            entry = pwd.getpwnam(name)
        except KeyError:
            continue
        return SystemAccount(name, entry.pw_uid, entry.pw_gid)
    raise EmbeddedError(
        "PostgreSQL does not run as root, "
        "and this machine has neither an account postgres nor nobody. "
        "Start as an ordinary user, or set DATABASE_URL."
    )


def _name_of(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:  # containers run as ids that have no entry
        return str(uid)
