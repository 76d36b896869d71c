"""The folder of the embedded server's data, and the one instead that its account can enter."""

from __future__ import annotations

import hashlib
import os
import re
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from cms.embedded import EmbeddedError
from cms.embedded.system_account import (
    SystemAccount,
    account_for_new_data,
    can_enter,
    own_account,
    server_account,
)

FALLBACK_FOLDER = Path("/var/lib/cms")


@dataclass(frozen=True, slots=True)
class DataFolder:
    """The folder that holds a server's data, and the account that serves it."""

    home: Path
    account: SystemAccount

    @property
    def cluster(self) -> Path:
        """PostgreSQL's own data folder."""
        return self.home / "postgres"

    @property
    def locks(self) -> Path:
        """The folder of the lock files; outside the cluster, which `initdb` needs empty."""
        return self.home / "postgres.run"


def choose_folder(data: Path, announce: Callable[[str], None]) -> DataFolder:
    """Return the folder of the server for `data`; makes it.

    That is `data` itself, except where root starts the server and the server's account cannot enter
    `data`: then it is a folder named after `data` in `fallback_folder`. Data that exists stays
    where it is.
    """
    home = data.resolve()
    home.mkdir(parents=True, exist_ok=True)
    # Only root may act as another account, and existing data has chosen its account already.
    if os.geteuid() or has_cluster(home):
        return DataFolder(home, server_account(home / "postgres"))
    account = account_for_new_data()
    fallback = _fallback_home(home, account)
    if not has_cluster(fallback) and can_enter(account, home):
        return DataFolder(home, account)
    make_own_folder(fallback.parent)
    make_own_folder(fallback)
    data_folder = DataFolder(fallback, server_account(fallback / "postgres"))
    announce(f"{account.as_subject} cannot enter {home}: its data is in {fallback}.")
    return data_folder


def has_data(data: Path) -> bool:
    """Tell whether a server for `data` would find data or begin anew; makes nothing."""
    home = data.resolve()
    try:
        if has_cluster(home):
            return True
    except PermissionError:
        return True  # there is data of another account, and a start tells what to do
    # Only what root starts may have its data elsewhere.
    return os.geteuid() == 0 and has_cluster(_fallback_home(home, account_for_new_data()))


def existing_folder(data: Path) -> DataFolder | None:
    """Return the folder of the server for `data`, None if there is no data yet; makes nothing."""
    home = data.resolve()
    if has_cluster(home):
        return DataFolder(home, server_account(home / "postgres"))
    if os.geteuid():
        return None
    fallback = _fallback_home(home, account_for_new_data())
    if not has_cluster(fallback):
        return None
    return DataFolder(fallback, server_account(fallback / "postgres"))


def has_cluster(home: Path) -> bool:
    # The file that `initdb` writes, not the folder alone, which anybody may have made.
    return (home / "postgres" / "PG_VERSION").exists()


def _fallback_home(home: Path, account: SystemAccount) -> Path:
    """Return the folder for the data of `home` when the server's account cannot enter `home`."""
    return fallback_folder(home, account) / short_name(home)


def fallback_folder(home: Path, account: SystemAccount) -> Path:
    """Return the folder to use when the server's account cannot reach that of data or programs.

    For temporary data it is a temporary folder.
    """
    temporary = Path(tempfile.gettempdir()).resolve()
    if home.is_relative_to(temporary) and can_enter(account, temporary):
        return temporary / f"cms-{os.geteuid()}"
    return FALLBACK_FOLDER


def short_name(path: Path) -> str:
    """Return a short name for `path` that a person recognises and that no other path has."""
    # The last two parts identify the folder for people; the digest is of the whole path.
    readable_part = re.sub(r"[^A-Za-z0-9]+", "-", "-".join(path.parts[-2:])).strip("-")
    return f"{readable_part[:40]}-{hashlib.sha256(os.fsencode(path)).hexdigest()[:12]}"


def make_own_folder(path: Path) -> None:
    """Make a folder that everybody may enter and only this account may change.

    Raises `EmbeddedError` for one of another account: in a temporary folder anybody may have made
    it.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        path.mkdir()
    except FileExistsError:
        # The owner of a link could turn it elsewhere, even if somebody else owns its target.
        if path.is_symlink() or path.stat().st_uid != os.geteuid():
            raise EmbeddedError(
                f"{path} does not belong to {own_account().name}. "
                "Remove it, or set another DATA_DIR."
            ) from None
    else:
        path.chmod(0o755)
