"""The tables and functions of the queue, from the schema and migrations of procrastinate.

The changes that this service makes to them (sql/queue) are applied after these, and again after
each newer migration, which may have replaced the same objects.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

from cms.database.statements import sql_folder


@dataclass(frozen=True, slots=True)
class QueueMigration:
    """SQL to run in one transaction, and the names of the migrations that it applies."""

    name: str
    text: str
    migrations: tuple[str, ...]


def missing_migrations(applied: Collection[str]) -> tuple[QueueMigration, ...]:
    """Return the migrations to apply: the whole schema where none was applied before.

    Raises ValueError when the tables are of a newer version of the package.
    """
    # Their names begin with the version that they came with: sorted, they are in their order.
    files = _files(_folder() / "migrations")
    # The name of a change says after which migration it was made.
    last = list(files)[-1]
    changes: dict[str, Path] = {}
    for name, path in _files(sql_folder() / "queue").items():
        changes[f"{last} {name}"] = path
    if not applied:
        # The schema of a version holds all of its migrations.
        name = f"procrastinate {version('procrastinate')}"
        schema = QueueMigration(name, _text(_folder() / "schema.sql"), tuple(files))
        return (schema, *_missing(changes, applied))
    # Names of changes begin with that of a migration, too.
    known_to_tables = {name.split()[0] for name in applied}
    newer = sorted(known_to_tables - files.keys())
    # An older package must not work on tables that it does not know.
    if newer:
        raise ValueError(
            f"The queue was migrated by a newer version of procrastinate ({newer[-1]}). "
            "Install the newer version again."
        )
    return tuple(_missing({**files, **changes}, applied))


def _missing(files: Mapping[str, Path], applied: Collection[str]) -> Iterator[QueueMigration]:
    for name, path in files.items():
        if name not in applied:
            yield QueueMigration(f"procrastinate {name}", _text(path), (name,))


def _files(folder: Path) -> dict[str, Path]:
    """Return the files of a folder by their names, in the order of these."""
    return {path.stem: path for path in sorted(folder.glob("*.sql"))}


@cache
def _folder() -> Path:
    """Return the folder of the package's SQL files without importing it, which takes long."""
    spec = find_spec("procrastinate")
    assert spec is not None
    assert spec.origin is not None
    return Path(spec.origin).parent / "sql"


def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8")
