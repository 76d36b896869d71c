"""A CSV of 1,000,000 rows for one import."""

from __future__ import annotations

from pathlib import Path

from bench.bulk import BulkLoad, write_items
from bench.wire import upload

ROWS = 1_000_000
QUICK_ROWS = 100_000
_TURNS = 3


def imported(folder: Path, *, token: str, rows: int) -> BulkLoad:
    """Return the file of an import; with a history, whose COPY takes a minute, it has one turn."""
    file = write_items(folder / "rows.csv", rows)

    def make_request(collection: str) -> bytes:
        return upload(
            f"/utils/import/{collection}", file.read_bytes(), token=token, media_type="text/csv"
        )

    return BulkLoad(rows, file, make_request, _TURNS, 1)
