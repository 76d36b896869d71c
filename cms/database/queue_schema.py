"""The tables and functions of the queue: they come from the package procrastinate, as its schema and its migrations."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from functools import cache
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path


@dataclass(frozen=True, slots=True)
class QueueMigration:
    """SQL of the package to run in one transaction, and the names of the migrations that the tables then hold."""

    name: str
    text: str
    migrations: tuple[str, ...]


def missing_migrations(applied: Collection[str]) -> tuple[QueueMigration, ...]:
    """Return what the tables need: the schema where none of its migrations was applied, else those not applied yet.

    Raises ValueError when the tables are of a newer version of the package.
    """
    files = {path.stem: path for path in sorted((_folder() / "migrations").glob("*.sql"))}
    if not applied:
        return (
            QueueMigration(
                f"procrastinate {version('procrastinate')}",
                _text(_folder() / "schema.sql"),
                tuple(files),
            ),
        )
    if newer := sorted(set(applied) - files.keys()):
        raise ValueError(
            f"The queue was migrated by a newer version of procrastinate ({newer[-1]}). "
            "Install the newer version again."
        )
    return tuple(
        QueueMigration(f"procrastinate {name}", _text(files[name]), (name,))
        for name in files
        if name not in applied
    )


@cache
def _folder() -> Path:
    """Return the package's SQL files without importing it, which takes longer than all of this."""
    found = find_spec("procrastinate")
    assert found is not None
    assert found.origin is not None
    return Path(found.origin).parent / "sql"


def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8")
