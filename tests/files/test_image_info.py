"""The metadata of images, and that no image fails an upload."""

from __future__ import annotations

import struct
import zlib
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from PIL import ExifTags, Image, ImageCms

from cms.files.image_info import image_info_of
from cms.files.image_job import ImageInfo
from tests.files.forms import FileService
from tests.files.images import picture, png_chunk


def exif(**tags: Any) -> Image.Exif:
    exif = Image.Exif()
    for name, value in tags.items():
        exif[ExifTags.Base[name]] = value
    return exif


def info_of(content: bytes) -> ImageInfo:
    with TemporaryDirectory() as folder:
        source = Path(folder, "image")
        source.write_bytes(content)
        return image_info_of(source)


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP", "TIFF", "AVIF", "GIF", "BMP"])
def test_an_image_has_its_size(files: FileService, kind: str) -> None:
    file = files.add(picture(kind), "a.bin")
    assert (file["width"], file["height"]) == (40, 20)


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP", "TIFF", "AVIF"])
@pytest.mark.parametrize("orientation", range(1, 9))
def test_the_size_is_that_of_the_image_as_it_is_seen(kind: str, orientation: int) -> None:
    info = info_of(picture(kind, exif=exif(Orientation=orientation)))
    assert (info.width, info.height) == ((20, 40) if orientation > 4 else (40, 20))


def test_what_cameras_and_editors_wrote_is_kept_by_group(files: FileService) -> None:
    written = exif(Make="Maker\0", Model="Model")
    written.get_ifd(ExifTags.IFD.Exif).update(
        {ExifTags.Base.ISOSpeedRatings: 200, ExifTags.Base.FNumber: 2.8}
    )
    written.get_ifd(ExifTags.IFD.GPSInfo).update(
        {ExifTags.GPS.GPSLatitudeRef: "N", ExifTags.GPS.GPSLatitude: (1.0, 2.0, 3.5)}
    )
    profile = ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes()
    metadata = files.add(picture(exif=written, icc_profile=profile), "a.jpg")["metadata"]
    assert metadata["ifd0"] == {"Make": "Maker", "Model": "Model"}
    assert metadata["exif"] == {"ISOSpeedRatings": 200, "FNumber": 2.8}
    assert metadata["gps"] == {"GPSLatitudeRef": "N", "GPSLatitude": [1.0, 2.0, 3.5]}
    assert metadata["icc"] == {"description": "sRGB built-in"}


def test_the_words_of_an_editor_are_kept() -> None:
    def field(number: int, value: bytes) -> bytes:
        return b"\x1c\x02" + bytes([number]) + struct.pack(">H", len(value)) + value

    data = (
        field(120, "Käse".encode()) + field(25, b"red") + field(25, b"green") + field(105, b"\xff")
    )
    block = (
        b"Photoshop 3.0\x008BIM\x04\x04\0\0"
        + struct.pack(">I", len(data))
        + data
        + b"\0" * (len(data) % 2)
    )
    whole = picture()
    content = whole[:2] + b"\xff\xed" + struct.pack(">H", len(block) + 2) + block + whole[2:]
    info = info_of(content).metadata["iptc"]
    assert info["keywords"] == ["red", "green"]
    assert info["caption"] == "Käse"


def bomb() -> bytes:
    """A PNG of 10 gigapixels in a few bytes, with a text that would take 20 MB."""
    head = png_chunk(b"IHDR", struct.pack(">IIBBBBB", 100_000, 100_000, 8, 2, 0, 0, 0))
    text = png_chunk(b"zTXt", b"a\0\0" + zlib.compress(b"\0" * 20_000_000, 9))
    return (
        b"\x89PNG\r\n\x1a\n"
        + head
        + text
        + png_chunk(b"IDAT", zlib.compress(b"\0" * 1000))
        + png_chunk(b"IEND", b"")
    )


def test_an_image_that_cannot_be_read_is_a_file_all_the_same(files: FileService) -> None:
    for content in (
        picture()[:30],
        picture("PNG")[:20] + b"\0" * 50,
        b"\xff\xd8\xff" + b"\xe1\xff\xff" * 30,
    ):
        file = files.add(content, "a.jpg")
        assert file["type"].startswith("image/")
        assert file["filesize"] == len(content)


def test_the_size_of_a_bomb_is_read_without_its_pixels(files: FileService) -> None:
    file = files.add(bomb()[:99_000], "bomb.png")
    assert (file["type"], file["width"]) == ("image/png", 100_000)


def test_metadata_beyond_measure_is_left_out() -> None:
    names = (
        "ImageDescription Make Model Software Artist Copyright HostComputer DocumentName "
        "PageName InkNames"
    )
    tags = dict.fromkeys(names.split(), "x" * 2000)
    content = picture("PNG", exif=exif(**tags))
    info = info_of(content)
    assert (info.width, info.metadata) == (40, {})
