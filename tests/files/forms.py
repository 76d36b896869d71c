"""Forms as browsers send them, and an application whose files lie in folders of the test's own."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from cms.config import Config
from cms.config.locations import Location
from tests.client import Answer, Client
from tests.things import Stage, staged

BOUNDARY = "----boundary of a test"

Part = tuple[str, str | bytes] | tuple[str, str | bytes, str] | tuple[str, str | bytes, str, str]
"""A field's name and value; a file has its name, and perhaps its declared type, behind them."""


def form(*parts: Part, end: bytes = b"--\r\n") -> bytes:
    """Return the body of a form."""
    pieces = [_part(*part) for part in parts]
    return b"".join(b"--" + BOUNDARY.encode() + b"\r\n" + piece + b"\r\n" for piece in pieces) + (
        b"--" + BOUNDARY.encode() + end
    )


def _part(
    name: str, value: str | bytes, filename: str | None = None, declared: str | None = None
) -> bytes:
    raw = value.encode() if isinstance(value, str) else value
    head = f'Content-Disposition: form-data; name="{name}"'
    head += f'; filename="{filename}"' if filename is not None else ""
    head += f"\r\nContent-Type: {declared}" if declared else ""
    return head.encode() + b"\r\n\r\n" + raw


@dataclass(frozen=True)
class FileService:
    """The administrator's client of an application, and the folders that hold its files."""

    stage: Stage
    folder: Path

    @property
    def locations(self) -> tuple[Location, ...]:
        return locations_in(self.folder)

    @property
    def admin(self) -> Client:
        return self.stage.admin

    def send(self, method: str, path: str, *parts: Part, client: Client | None = None) -> Answer:
        """Send a form."""
        headers = {"Content-Type": f'multipart/form-data; boundary="{BOUNDARY}"'}
        return (client or self.admin).send(method, path, raw=form(*parts), **headers)

    def upload(self, *parts: Part) -> Any:
        """Upload by form and return the `data` of the answer."""
        return self.send("POST", "/files", *parts).data

    def add(self, content: bytes = b"some text", name: str = "a.txt", **fields: str) -> Any:
        """Upload one file."""
        return self.upload(*fields.items(), ("file", content, name))

    def contents(self) -> dict[str, bytes]:
        """Return what lies in the folders, by path."""
        paths = (path for path in self.folder.rglob("*") if path.is_file())
        return {str(path.relative_to(self.folder)): path.read_bytes() for path in paths}

    @contextmanager
    def nothing_stays(self) -> Iterator[None]:
        """Fail when contents or rows are more or less than before."""
        before = self.contents(), self.rows()
        yield
        assert (self.contents(), self.rows()) == before

    def rows(self) -> int:
        return int(self.stage.value("SELECT count(*) FROM system_files"))


def locations_in(folder: Path) -> tuple[Location, ...]:
    return tuple(Location(name, "local", str(folder / name)) for name in ("local", "other"))


@contextmanager
def file_service(
    settings: Config, folder: Path, make_database: Callable[..., str], template: str, **changes: Any
) -> Iterator[FileService]:
    """Make an application with the locations `local` and `other`, of
    which files may have 100,000 bytes.
    """
    limits = {"files_max_upload_size": 100_000, "locations": locations_in(folder), **changes}
    with staged(replace(settings, **limits), make_database, template) as stage:
        yield FileService(stage, folder)
