"""The tables and functions of the queue, from the schema and migrations of procrastinate."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from functools import cache
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path


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
    # Their names begin with the version that brought them: sorted, they are in their order.
    files = {path.stem: path for path in sorted((_folder() / "migrations").glob("*.sql"))}
    if not applied:
        # The schema of a version holds all of its migrations.
        name = f"procrastinate {version('procrastinate')}"
        return (QueueMigration(name, _text(_folder() / "schema.sql"), tuple(files)),)
    # An older package must not work on tables that it does not know.
    if newer := sorted(set(applied) - files.keys()):
        raise ValueError(
            f"The queue was migrated by a newer version of procrastinate ({newer[-1]}). "
            "Install the newer version again."
        )
    missing = []
    for name, path in files.items():
        if name not in applied:
            missing.append(QueueMigration(f"procrastinate {name}", _text(path), (name,)))
    return tuple(missing)


@cache
def _folder() -> Path:
    """Return the folder of the package's SQL files without importing it, which takes long."""
    spec = find_spec("procrastinate")
    assert spec is not None
    assert spec.origin is not None
    return Path(spec.origin).parent / "sql"


def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8")
