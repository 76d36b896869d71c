"""`cms import` and `cms export`: files of items in and out of the running service."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import PurePath
from typing import BinaryIO
from urllib.parse import quote

import click
from rich.console import Console
from rich.progress import (
    BarColumn,
    DownloadColumn,
    Progress,
    SpinnerColumn,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
)

from cms.cli.service import Service
from cms.cli.session import say

MEDIA_TYPES = {"csv": "text/csv", "json": "application/json", "jsonl": "application/x-ndjson"}

_CHUNK = 1 << 18
_FORMATS = {".csv": "csv", ".json": "json", ".jsonl": "jsonl", ".ndjson": "jsonl"}


def import_file(
    service: Service, collection: str, file: BinaryIO, *, size: int | None, file_format: str
) -> None:
    """Send a file and tell how many items were created and updated."""
    with _progress() as progress:
        chunks = iter(lambda: file.read(_CHUNK), b"")
        counted = _with_progress(
            chunks, progress, progress.add_task(f"sending {collection}", total=size)
        )
        made = service.upload(
            f"/utils/import/{quote(collection)}", counted, media_type=MEDIA_TYPES[file_format]
        )
    say(f"{collection}: {made['created']} created, {made['updated']} updated")


def export_file(
    service: Service, collection: str, output: BinaryIO, *, params: dict[str, str]
) -> None:
    """Write all items of a collection, or those of a filter."""
    with _progress() as progress:
        chunks = service.download(f"/items/{quote(collection)}", {"limit": "-1", **params})
        for chunk in _with_progress(
            chunks, progress, progress.add_task(f"reading {collection}", total=None)
        ):
            output.write(chunk)
        output.flush()


def file_format_of(name: str, named: str | None) -> str:
    """Return the form of a file, as said or by its name; raises `UsageError` where neither tells."""
    file_format = named or _FORMATS.get(PurePath(name).suffix.lower())
    if file_format is None:
        raise click.UsageError(f"Say what {name} is: --format {', '.join(MEDIA_TYPES)}")
    return file_format


def _with_progress(chunks: Iterable[bytes], progress: Progress, task: TaskID) -> Iterator[bytes]:
    for chunk in chunks:
        progress.advance(task, len(chunk))
        yield chunk
    progress.update(task, description="waiting for the service", total=None)


def _progress() -> Progress:
    """Where nobody watches, nothing is drawn."""
    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(),
        DownloadColumn(),
        TimeElapsedColumn(),
    )
    console = Console(stderr=True)
    return Progress(*columns, console=console, transient=True, disable=not console.is_terminal)
