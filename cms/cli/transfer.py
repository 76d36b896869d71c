"""`cms import`, `cms export` and `cms types`: files in and out of the running service."""

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
from cms.import_formats import IMPORT_FORMAT_BY_SUFFIX, IMPORT_FORMATS, media_type_of

_CHUNK_BYTES = 1 << 18


def import_file(
    service: Service, collection: str, file: BinaryIO, *, size: int | None, file_format: str
) -> None:
    """Send a file, and print how many items were created and updated."""
    with _progress() as progress:
        # An iterator, which is sent as it is read: a file may be larger than memory.
        chunks = iter(lambda: file.read(_CHUNK_BYTES), b"")
        watched_chunks = _with_progress(
            chunks, progress, progress.add_task(f"sending {collection}", total=size)
        )
        counts = service.post(
            f"/utils/import/{quote(collection)}",
            watched_chunks,
            media_type=media_type_of(file_format),
        )
    say(f"{collection}: {counts['created']} created, {counts['updated']} updated")


def export_file(
    service: Service, collection: str, output: BinaryIO, *, params: dict[str, str]
) -> None:
    """Write all items of a collection, or those of a filter."""
    with _progress() as progress:
        # All items: without a limit an export is one page.
        chunks = service.download(f"/items/{quote(collection)}", {"limit": "-1", **params})
        for chunk in _with_progress(
            chunks, progress, progress.add_task(f"reading {collection}", total=None)
        ):
            output.write(chunk)
        output.flush()


def file_format_of(name: str, chosen: str | None) -> str:
    """Return the chosen format, else that of the suffix; raises `UsageError` without either."""
    file_format = chosen or IMPORT_FORMAT_BY_SUFFIX.get(PurePath(name).suffix.lower())
    if file_format is None:
        raise click.UsageError(f"Say what {name} is: --format {', '.join(IMPORT_FORMATS)}")
    return file_format


def _with_progress(chunks: Iterable[bytes], progress: Progress, task: TaskID) -> Iterator[bytes]:
    """Yield the chunks, and show how many have passed."""
    for chunk in chunks:
        progress.advance(task, len(chunk))
        yield chunk
    # After an upload the service still works; without a total the bar moves to and fro.
    progress.update(task, description="waiting for the service", total=None)


def _progress() -> Progress:
    """Return a progress bar; nothing is drawn where standard error is no terminal."""
    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(),
        DownloadColumn(),
        TimeElapsedColumn(),
    )
    # Standard output may be the exported file itself.
    console = Console(stderr=True)
    return Progress(*columns, console=console, transient=True, disable=not console.is_terminal)


def write_types(service: Service, file: str, *, language: str) -> None:
    """Write the types in a language into a file; `-` is the output."""
    # Whole before the file is opened: a refusal must leave the former types as they are.
    content = b"".join(service.download("/server/specs/types", {"language": language}))
    with click.open_file(file, "wb") as output:
        output.write(content)
