"""Backups and restorations without the command line, and archives that somebody has changed."""

from __future__ import annotations

import tarfile
from dataclasses import dataclass, field
from pathlib import Path

from cms.backup import Watcher
from cms.backup.archive_format import member_of, packed, unpacked
from cms.backup.archives import ArchiveFile
from cms.backup.restoring import Restoration
from cms.backup.writing import Backup
from cms.config.locations import Location
from cms.embedded.binaries import find_program
from cms.files.storage import Storages


@dataclass
class Notes:
    """Keeps the notes that it gets, and how many bytes each stage had."""

    sentences: list[str] = field(default_factory=list)
    stages: dict[str, int] = field(default_factory=dict)

    def begin(self, stage: str, total: int | None) -> None:
        self.stages[stage] = 0

    def advance(self, count: int) -> None:
        self.stages[list(self.stages)[-1]] += count

    def report(self, sentence: str) -> None:
        self.sentences.append(sentence)


@dataclass(frozen=True)
class Installation:
    """A database and the folders of its files."""

    dsn: str
    locations: tuple[Location, ...]

    @property
    def storages(self) -> Storages:
        return Storages(self.locations)

    def back_up(self, path: Path, *, watcher: Watcher | None = None) -> Notes:
        notes = Notes()
        backup = Backup(self.dsn, self.storages, find_program=find_dump, watcher=watcher or notes)
        ArchiveFile(path).write(packed(backup.members()))
        return notes

    def restore(
        self, path: Path, *, replaces: bool = False, watcher: Watcher | None = None
    ) -> Notes:
        notes = Notes()
        archive = ArchiveFile(path)
        restoration = Restoration(
            self.dsn, self.storages, archive=archive, watcher=watcher or notes
        )
        restoration.run(replaces=replaces)
        return notes

    def contents(self) -> dict[str, bytes]:
        """Return the files in the folders of the locations, by location and path."""
        contents = {}
        for location in self.locations:
            root = Path(location.root)
            for path in root.rglob("*"):
                if path.is_file():
                    contents[f"{location.name}/{path.relative_to(root)}"] = path.read_bytes()
        return contents


def find_dump(major: int) -> Path:
    return find_program("pg_dump", postgres_bin=None, major=major)


def members_of(path: Path) -> dict[str, bytes]:
    """Return what Python's own reader finds in an archive."""
    with tarfile.open(path, "r:gz") as archive:
        contents = {}
        for info in archive:
            file = archive.extractfile(info)
            assert file is not None
            contents[info.name] = file.read()
        return contents


def rewrite(archive: Path, change: dict[bytes, bytes]) -> None:
    """Write an archive anew, sealed, with other bytes in its members: somebody's own archive."""
    members = []
    for member in unpacked([archive.read_bytes()]):
        content = b"".join(member.pieces)
        for old, new in change.items():
            content = content.replace(old, new)
        members.append(member_of(member.name, content))
    archive.write_bytes(b"".join(packed(members)))
