"""Neither a large table nor a large file is held in memory."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.backup.archives import Installation, Notes
from tests.databases import SideDoor
from tests.files.forms import FileService
from tests.memory import resident_bytes

pytestmark = pytest.mark.release

MEGABYTE = 2**20
LARGE = 150 * MEGABYTE
BOUND = 60 * MEGABYTE


@pytest.fixture
def large(files: FileService) -> Iterator[Installation]:
    """A service with a table and a file of more than `LARGE` bytes."""
    row = files.add(b"x", "large.bin")
    with (files.folder / "local" / row["filename_disk"]).open("wb") as file:
        for number in range(LARGE // MEGABYTE):
            file.write(bytes([number % 256]) * MEGABYTE)
    door = SideDoor(files.stage.dsn)
    with door.connection() as connection:
        connection.execute("CREATE TABLE large (words text)")
        connection.execute(
            "INSERT INTO large SELECT repeat('0123456789', 10000) || number "
            f"FROM generate_series(1, {LARGE // 100_000}) AS number"
        )
    yield Installation(files.stage.dsn, files.locations)
    with door.connection() as connection:
        connection.execute("DROP TABLE large")
    door.close()


class Measuring(Notes):
    """Keeps the most memory that this process has had."""

    max_bytes = 0

    def advance(self, count: int) -> None:
        super().advance(count)
        self.max_bytes = max(self.max_bytes, resident_bytes())


def test_memory_does_not_grow_with_tables_and_files(
    large: Installation, empty: Installation, archive: Path
) -> None:
    gc.collect()
    before = resident_bytes()
    notes = Measuring()
    large.back_up(archive, watcher=notes)
    assert notes.stages["tables"] > 0.99 * LARGE
    assert notes.stages["files"] >= LARGE
    assert notes.max_bytes - before < BOUND
    notes = Measuring()
    empty.restore(archive, watcher=notes)
    assert notes.max_bytes - before < BOUND
    assert {name: len(content) for name, content in empty.contents().items()} == {
        name: len(content) for name, content in large.contents().items()
    }
