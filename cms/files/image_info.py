"""Facts about an image: its size as viewers show it, and the metadata of cameras and editors.

Only the heads of images are read, never their pixels, and of these no more than the limits below:
whoever may upload can send any bytes. A broken image does not make an upload fail.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from io import BytesIO
from typing import Any, BinaryIO

from PIL import ExifTags, Image, ImageCms, ImageFile, IptcImagePlugin

from cms import jsontext
from cms.errors import Refused
from cms.files.tag_limits import bounded, limited_tags

log = logging.getLogger("cms.files")

FORMATS = ("JPEG", "PNG", "GIF", "WEBP", "TIFF", "AVIF", "BMP", "ICO")
READ_INTO_MEMORY = frozenset({"image/webp", "image/avif"})
"""Formats that Pillow reads whole to look at the head."""

MAX_READ_INTO_MEMORY = 32 * 2**20

MAX_HEAD_BYTES = 8 * 2**20
MAX_HEAD_BYTES_BY_TYPE: Mapping[str, int] = {
    # Pillow puts comments together piece by piece, each time copying what it has.
    "image/gif": 2**20,
    **dict.fromkeys(READ_INTO_MEMORY, MAX_READ_INTO_MEMORY),
}
"""Bytes that are read of an image before it counts as unreadable."""

MAX_METADATA_BYTES = 16 * 1024
MAX_TEXT_LENGTH = 2000
MAX_VALUES = 64

SIDEWAYS = frozenset({5, 6, 7, 8})
"""The orientations that swap width and height."""

_POINTERS = frozenset(
    {"ExifOffset", "GPSInfo", "MakerNote", "InteroperabilityOffset", "StripOffsets", "TileOffsets"}
)
"""Tags that say where something lies in the file, or hold data in a camera's own format."""

_IPTC = {
    (2, 5): "object_name",
    (2, 25): "keywords",
    (2, 80): "byline",
    (2, 90): "city",
    (2, 101): "country",
    (2, 105): "headline",
    (2, 110): "credit",
    (2, 116): "copyright",
    (2, 120): "caption",
}


@dataclass(frozen=True, slots=True)
class ImageInfo:
    """The size of an image in pixels, turned upright, and its metadata by group."""

    width: int | None = None
    height: int | None = None
    metadata: Mapping[str, Any] = field(default_factory=dict)


def image_info_of(content: BinaryIO, *, media_type: str, size: int) -> ImageInfo:
    """Return the facts about a content; they are empty if it is no readable image.

    Lets a `Refused` of reading the content pass through.
    """
    if not media_type.startswith("image/") or (
        media_type in READ_INTO_MEMORY and size > MAX_READ_INTO_MEMORY
    ):
        return ImageInfo()
    head = bounded(content, MAX_HEAD_BYTES_BY_TYPE.get(media_type, MAX_HEAD_BYTES))
    try:
        with limited_tags(), Image.open(head, formats=FORMATS) as image:
            return _read(image)
    except Refused:  # by the location of the content, which says nothing of the image
        raise
    except Exception as fault:  # a broken image makes Pillow raise any exception
        log.info("an image of the type %s cannot be read: %s", media_type, type(fault).__name__)
        return ImageInfo()


def _read(image: Image.Image) -> ImageInfo:
    exif = _exif(image)
    width, height = image.size
    if exif.get(ExifTags.Base.Orientation) in SIDEWAYS:
        height, width = image.size
    groups = {
        "ifd0": _named_values(exif, ExifTags.TAGS),
        **_sub_directories(exif),
        "iptc": _iptc(image),
        "icc": _icc(image),
    }
    metadata = {name: values for name, values in groups.items() if values}
    # Every list of files would include it.
    if len(jsontext.dumps(metadata)) > MAX_METADATA_BYTES:
        metadata = {}
    return ImageInfo(width, height, metadata)


def _exif(image: Image.Image) -> Image.Exif:
    """Return the EXIF block of an image."""
    # A PNG may have it behind the pixels, which Pillow would decode to get there.
    if image.format == "PNG" and "exif" not in image.info:
        return Image.Exif()
    return image.getexif()


def _sub_directories(exif: Image.Exif) -> dict[str, dict[str, Any]]:
    return {
        "exif": _named_values(exif.get_ifd(ExifTags.IFD.Exif), ExifTags.TAGS),
        "gps": _named_values(exif.get_ifd(ExifTags.IFD.GPSInfo), ExifTags.GPSTAGS),
    }


def _named_values(tags: Any, names: Mapping[int, str]) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for tag, tag_value in tags.items():
        # Tags that Pillow has no name for are left out.
        name = names.get(tag)
        value = _json_value(tag_value)
        if name and name not in _POINTERS and value not in (None, "", []):
            values[name] = value
    return values


def _json_value(value: Any) -> Any:
    """Return a value as JSON can hold it; None unless it is a text, a number or a list of these."""
    if isinstance(value, bool | int):
        return value
    if isinstance(value, str):
        return value.replace("\0", "").strip()[:MAX_TEXT_LENGTH]
    if isinstance(value, bytes):
        return _decoded(value)
    if isinstance(value, tuple | list):
        # Long lists are tables of the file's own format.
        if len(value) > MAX_VALUES:
            return None
        return [_json_value(element) for element in value]
    # Fractions of EXIF, with a denominator of 0 now and then.
    try:
        number = float(value)
    except (TypeError, ValueError, ZeroDivisionError):
        return None
    if math.isfinite(number):
        return number
    return None


def _decoded(raw: bytes) -> str | None:
    try:
        text = raw.decode().replace("\0", "").strip()[:MAX_TEXT_LENGTH]
    except UnicodeDecodeError:
        return None
    # Binary values may decode by accident.
    if not text.isprintable():
        return None
    return text


def _iptc(image: Image.Image) -> dict[str, Any]:
    if image.format not in ("JPEG", "MPO", "TIFF") or not isinstance(image, ImageFile.ImageFile):
        return {}
    return dict(_iptc_values(IptcImagePlugin.getiptcinfo(image) or {}))


def _iptc_values(records: Mapping[tuple[int, int], Any]) -> Iterator[tuple[str, Any]]:
    for number, name in _IPTC.items():
        record = records.get(number)
        # Pillow makes a list of a record only where it is repeated.
        raw_values = record if isinstance(record, list) else [record]
        values: list[str | None] = []
        for raw in raw_values:
            if isinstance(raw, bytes):
                values.append(_decoded(raw))
        if name == "keywords" and values:
            yield name, values
        elif values:
            yield name, values[0]


def _icc(image: Image.Image) -> dict[str, Any]:
    profile = image.info.get("icc_profile")
    if not isinstance(profile, bytes):
        return {}
    try:
        parsed = ImageCms.ImageCmsProfile(BytesIO(profile))
        return {"description": ImageCms.getProfileDescription(parsed).strip()}
    except (ImageCms.PyCMSError, OSError):
        return {}
