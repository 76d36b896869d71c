"""Images that are made to take the memory or the time of whoever looks at them."""

from __future__ import annotations

import struct
import subprocess
import sys
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta

import pytest
from PIL import Image

from cms.config import Config
from tests.files.forms import FileService, file_service
from tests.files.images import picture

pytestmark = pytest.mark.release

MAX_PEAK_BYTES = 32 * 2**20
BYTE = 1
SHORT = 3


def overlapping_tags(size: int, *, count: int, kind: int = BYTE) -> bytes:
    """A block of tags which all have nearly the whole block as their value."""
    start = 14 + 12 * count
    length = (size - start) // (2 if kind == SHORT else 1)
    tags = [struct.pack("<HHII", 300 + number, kind, length, start) for number in range(count)]
    head = b"II*\0" + struct.pack("<IH", 8, count) + b"".join(tags) + bytes(4)
    return head.ljust(size, b"\x12")


def with_segments(marker: int, *segments: bytes) -> bytes:
    """A JPEG with these segments at its beginning."""
    whole = picture()
    packed = [struct.pack(">BBH", 0xFF, marker, len(segment) + 2) + segment for segment in segments]
    return whole[:2] + b"".join(packed) + whole[2:]


def with_exif(block: bytes) -> bytes:
    """A JPEG whose tags take several segments."""
    pieces = [block[start : start + 65_000] for start in range(0, len(block), 65_000)]
    return with_segments(0xE1, *(b"Exif\0\0" + piece for piece in pieces))


def gif_of_comments(count: int) -> bytes:
    whole = picture("GIF")
    head_length = 13 + 3 * (2 << (whole[10] & 7))
    return whole[:head_length] + b"\x21\xfe\4aaaa\0" * count + whole[head_length:]


TAGS = overlapping_tags(300_000, count=15_000)


@pytest.fixture(scope="module")
def files(
    settings: Config,
    tmp_path_factory: pytest.TempPathFactory,
    make_database: Callable[..., str],
    template: str,
) -> Iterator[FileService]:
    """An application that takes the images of this module, and gives up on them soon."""
    changes = {
        "files_max_upload_size": 2**22,
        "assets_transform_timeout": timedelta(seconds=2),
    }
    folder = tmp_path_factory.mktemp("files")
    with file_service(settings, folder, make_database, template, **changes) as files:
        yield files


@contextmanager
def unparsed(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Fail where this process, which is the service, parses an image or takes much memory."""

    def refuse(*arguments: object, **options: object) -> None:
        raise AssertionError("an image is parsed in the process of the service")

    monkeypatch.setattr(Image, "open", refuse)
    tracemalloc.start()
    try:
        yield
        assert tracemalloc.get_traced_memory()[1] < MAX_PEAK_BYTES
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(
    ("make", "media_type"),
    [
        (lambda: with_exif(TAGS), "image/jpeg"),
        (lambda: with_segments(0xE2, b"MPF\0" + TAGS[:65_000]), "image/jpeg"),
        (lambda: with_segments(0xE1, *[b"Exif\0\0"] * 200_000), "image/jpeg"),
        (lambda: picture("PNG", exif=b"Exif\0\0" + TAGS), "image/png"),
        (lambda: picture("WEBP", exif=b"Exif\0\0" + TAGS), "image/webp"),
        (lambda: picture("AVIF", exif=b"Exif\0\0" + TAGS), "image/avif"),
        (lambda: overlapping_tags(300_000, count=15_000, kind=SHORT), "image/tiff"),
        (lambda: gif_of_comments(300_000), "image/gif"),
    ],
)
def test_a_hostile_image_is_stored_and_takes_nothing_of_the_service(
    files: FileService,
    monkeypatch: pytest.MonkeyPatch,
    make: Callable[[], bytes],
    media_type: str,
) -> None:
    content = make()
    with unparsed(monkeypatch):
        file = files.add(content, "a.bin")
    assert (file["type"], file["filesize"]) == (media_type, len(content))


def test_a_replaced_content_is_read_in_the_same_way(
    files: FileService, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = files.add(b"some text", "a.txt")
    with unparsed(monkeypatch):
        changed = files.send("PATCH", f"/files/{file['id']}", ("file", picture(), "b.jpg")).data
    assert (changed["type"], changed["width"]) == ("image/jpeg", 40)


def test_images_are_read_as_ever_after_a_hostile_one(files: FileService) -> None:
    assert files.add(with_exif(TAGS), "a.jpg")["metadata"] is None
    assert files.add(picture(), "b.jpg")["width"] == 40


def test_the_service_does_not_even_load_the_parsers() -> None:
    program = "import sys, cms.app; sys.exit('PIL' in sys.modules)"
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)
