"""Images that are made to take the memory or the time of whoever looks at them."""

from __future__ import annotations

import struct
import tracemalloc
from io import BytesIO

import pytest
from PIL import ExifTags, Image

from cms.files.image_info import MAX_HEAD_BYTES, MAX_HEAD_BYTES_BY_TYPE, ImageInfo, image_info_of
from tests.files.images import picture

MAX_PEAK_BYTES = 16 * 2**20
BYTE = 1
SHORT = 3
UNDEFINED = 7

# Pillow warns where it leaves tags out.
pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")


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


def tiff_with_value(kind: int, length: int) -> bytes:
    """A TIFF of 5 × 4 pixels with one large value behind its usual tags."""
    usual = {256: 5, 257: 4, 258: 8, 259: 1, 262: 1, 273: 8, 277: 1, 278: 4, 279: 20}
    tags = [struct.pack("<HHII", tag, 4, 1, value) for tag, value in usual.items()]
    tags.append(struct.pack("<HHII", 37724, kind, length // (2 if kind == SHORT else 1), 200))
    head = b"II*\0" + struct.pack("<IH", 8, len(tags)) + b"".join(tags) + bytes(4)
    return head.ljust(200, b"\0") + b"\x12" * length


def info_within_limits(content: bytes, media_type: str) -> ImageInfo:
    tracemalloc.start()
    try:
        info = image_info_of(BytesIO(content), media_type=media_type, size=len(content))
        assert tracemalloc.get_traced_memory()[1] < len(content) + MAX_PEAK_BYTES
    finally:
        tracemalloc.stop()
    return info


@pytest.mark.parametrize("kind", ["PNG", "WEBP", "AVIF"])
@pytest.mark.parametrize("size", [65_000, 300_000])
def test_tags_with_the_same_value_take_little_memory(kind: str, size: int) -> None:
    block = b"Exif\0\0" + overlapping_tags(size, count=1000)
    content = picture(kind, exif=block)
    info = info_within_limits(content, f"image/{kind.lower()}")
    assert (info.width, info.height) == (40, 20)


@pytest.mark.parametrize("size", [65_000, 300_000])
@pytest.mark.parametrize("kind", [BYTE, SHORT])
def test_tags_of_a_jpeg_take_little_memory(size: int, kind: int) -> None:
    content = with_exif(overlapping_tags(size, count=1000, kind=kind))
    assert info_within_limits(content, "image/jpeg").width == 40


def test_the_index_of_several_images_takes_little_memory() -> None:
    index = overlapping_tags(65_000, count=1000, kind=SHORT)
    assert info_within_limits(with_segments(0xE2, b"MPF\0" + index), "image/jpeg").width == 40


@pytest.mark.parametrize("kind", [SHORT, UNDEFINED])
def test_a_large_value_of_a_tiff_is_not_read(kind: int) -> None:
    info = info_within_limits(tiff_with_value(kind, 20_000_000), "image/tiff")
    assert (info.width, info.height) == (5, 4)


def test_an_application_around_the_service_reads_its_images_as_ever() -> None:
    content = with_exif(
        b"II*\0" + struct.pack("<IHHHII", 8, 1, 271, 2, 200_000, 26) + bytes(4) + b"x" * 200_000
    )
    info = image_info_of(BytesIO(content), media_type="image/jpeg", size=len(content))
    assert info == ImageInfo(40, 20)
    with Image.open(BytesIO(content)) as image:
        assert len(image.getexif()[ExifTags.Base.Make]) == 200_000


@pytest.mark.parametrize(("more", "width"), [(0, 40), (1, None)])
def test_a_jpeg_with_a_long_head_is_not_read(more: int, width: int | None) -> None:
    count = MAX_HEAD_BYTES // 65_000 + more
    content = with_segments(0xE3, *[bytes(65_000)] * count)
    info = image_info_of(BytesIO(content), media_type="image/jpeg", size=len(content))
    assert info.width == width


@pytest.mark.parametrize(("count", "width"), [(2_000, 40), (20_000, None)])
@pytest.mark.parametrize("piece", [b"\xff", b"\xff\xe5\0\2"])
def test_a_jpeg_of_tiny_pieces_is_not_read(piece: bytes, count: int, width: int | None) -> None:
    whole = picture()
    content = whole[:2] + piece * count + whole[2:]
    info = image_info_of(BytesIO(content), media_type="image/jpeg", size=len(content))
    assert info.width == width


@pytest.mark.parametrize(("more", "width"), [(-10, 40), (10, None)])
def test_a_gif_with_a_long_comment_is_not_read(more: int, width: int | None) -> None:
    whole = picture("GIF")
    head_length = 13 + 3 * (2 << (whole[10] & 7))
    count = MAX_HEAD_BYTES_BY_TYPE["image/gif"] // 256 + more
    comment = b"\x21\xfe" + (b"\xff" + b"a" * 255) * count + b"\0"
    content = whole[:head_length] + comment + whole[head_length:]
    info = image_info_of(BytesIO(content), media_type="image/gif", size=len(content))
    assert info.width == width
