"""`cms backup` and `cms restore`: all of a service as one archive, and back again."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path

from rich.console import Console
from rich.progress import (
    BarColumn,
    DownloadColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from cms.backup.archive_format import packed
from cms.backup.archives import archive_at
from cms.backup.collection_restoring import CollectionRestoration
from cms.backup.restoring import Restoration
from cms.backup.writing import Backup
from cms.cli.session import announce, database, existing_database, say
from cms.config import Config
from cms.database.migrate import migrate, prepare_schema
from cms.embedded.binaries import find_program
from cms.files.storage import Storages

EXIT_MISSING = 3
"""The exit status of an archive that is whole, but in which contents of files are missing."""


def back_up(config: Config, address: str) -> int:
    """Write an archive, and return the exit status."""
    archive = archive_at(address, config)

    def find_dump(major: int) -> Path:
        return find_program("pg_dump", postgres_bin=config.postgres_bin, major=major)

    with existing_database(_with_direct_address(config)) as dsn, _progress() as bar:
        storages = Storages.from_config(config)
        backup = Backup(dsn, storages, find_program=find_dump, watcher=bar)
        # Closed while there still is a server: it ends the transaction of a backup that fails.
        with closing(backup.members()) as members:
            archive.write(packed(members))
        size = archive.size()
    say(f"Backed up into {address}: {_amount(size)}.")
    return _status_of_missing(backup.missing)


def restore(config: Config, address: str, *, replaces: bool) -> int:
    """Put an archive back, and return the exit status."""
    archive = archive_at(address, config)
    # Before a database is made for it.
    archive.size()
    with database(_with_direct_address(config)) as dsn, _progress() as bar:
        prepare_schema(dsn)
        storages = Storages.from_config(config)
        restoration = Restoration(dsn, storages, archive=archive, watcher=bar)
        missing = restoration.run(replaces=replaces)
        applied = migrate(dsn)
    say(f"Restored {address}.")
    for name in applied:
        say(f"Applied {name}.")
    return _status_of_missing(missing)


def restore_collection(config: Config, address: str, *, collection: str) -> None:
    """Put the rows of one collection back."""
    archive = archive_at(address, config)
    with existing_database(_with_direct_address(config)) as dsn, _progress() as bar:
        merged = CollectionRestoration(dsn, archive, bar, collection).run()
    say(f"{collection}: {merged.created} created, {merged.replaced} replaced.")


def _with_direct_address(config: Config) -> Config:
    """Return the settings with the address of the server itself: an archive needs one session."""
    return replace(config, database_url=config.database_direct_url or config.database_url)


def _status_of_missing(missing: int) -> int:
    if not missing:
        return 0
    announce(f"Files without a content: {missing}. They are named above.")
    return EXIT_MISSING


def _amount(size: int) -> str:
    return f"{size / 2**20:.1f} MB" if size >= 2**20 else f"{size / 2**10:.1f} KB"


class _Bar:
    """A bar on standard error, one stage at a time."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._task: TaskID | None = None

    def begin(self, stage: str, total: int | None) -> None:
        self._end()
        self._task = self._progress.add_task(stage, total=total)

    def advance(self, count: int) -> None:
        if self._task is not None:
            self._progress.advance(self._task, count)

    def report(self, sentence: str) -> None:
        if self._progress.disable:
            announce(sentence)
        else:
            self._progress.console.print(sentence, markup=False, highlight=False, soft_wrap=True)

    def _end(self) -> None:
        if self._task is not None:
            self._progress.remove_task(self._task)


@contextmanager
def _progress() -> Iterator[_Bar]:
    """Yield a progress bar; nothing is drawn where standard error is no terminal."""
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        DownloadColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    console = Console(stderr=True)
    with Progress(
        *columns, console=console, transient=True, disable=not console.is_terminal
    ) as progress:
        yield _Bar(progress)
