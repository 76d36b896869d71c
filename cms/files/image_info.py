"""What an image tells of itself: its size as it is seen, and what cameras and editors have written into it.

Only the heads of images are read, never their pixels, and whatever is wrong with them fails no upload.
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

log = logging.getLogger("cms.files")

FORMATS = ("JPEG", "PNG", "GIF", "WEBP", "TIFF", "AVIF", "BMP", "ICO")
READ_INTO_MEMORY = frozenset({"image/webp", "image/avif"})
"""What Pillow reads into memory to look at its head."""

MAX_READ_INTO_MEMORY = 32 * 2**20
MAX_METADATA_BYTES = 16 * 1024
MAX_TEXT_LENGTH = 2000
MAX_VALUES = 64

_ROTATED = frozenset({5, 6, 7, 8})
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
    """What is known of an image: pixels after its orientation, and metadata by group."""

    width: int | None = None
    height: int | None = None
    metadata: Mapping[str, Any] = field(default_factory=dict)


def image_info_of(content: BinaryIO, *, kind: str, size: int) -> ImageInfo:
    """Return what a content of a media type tells; nothing where it is no image that can be read."""
    if not kind.startswith("image/") or (kind in READ_INTO_MEMORY and size > MAX_READ_INTO_MEMORY):
        return ImageInfo()
    try:
        with Image.open(content, formats=FORMATS) as image:
            return _read(image)
    except Exception as fault:  # whatever a broken image makes of the library
        log.info("an image of the type %s cannot be read: %s", kind, type(fault).__name__)
        return ImageInfo()


def _read(image: Image.Image) -> ImageInfo:
    exif = _exif(image)
    width, height = image.size
    if exif.get(ExifTags.Base.Orientation) in _ROTATED:
        width, height = height, width
    groups = {
        "ifd0": _named_values(exif, ExifTags.TAGS),
        **_sub_directories(exif),
        "iptc": _iptc(image),
        "icc": _icc(image),
    }
    metadata = {name: found for name, found in groups.items() if found}
    return ImageInfo(
        width, height, metadata if len(jsontext.dumps(metadata)) <= MAX_METADATA_BYTES else {}
    )


def _exif(image: Image.Image) -> Image.Exif:
    """Return the EXIF block; that of a PNG which comes behind the pixels is left alone, for they would be decoded."""
    if image.format == "PNG" and "exif" not in image.info:
        return Image.Exif()
    return image.getexif()


def _sub_directories(exif: Image.Exif) -> dict[str, dict[str, Any]]:
    return {
        "exif": _named_values(exif.get_ifd(ExifTags.IFD.Exif), ExifTags.TAGS),
        "gps": _named_values(exif.get_ifd(ExifTags.IFD.GPSInfo), ExifTags.GPSTAGS),
    }


def _named_values(tags: Any, names: Mapping[int, str]) -> dict[str, Any]:
    found = ((names.get(tag), _json_value(value)) for tag, value in tags.items())
    return {
        name: value
        for name, value in found
        if name and value not in (None, "", []) and name not in _POINTERS
    }


_POINTERS = frozenset(
    {"ExifOffset", "GPSInfo", "MakerNote", "InteroperabilityOffset", "StripOffsets", "TileOffsets"}
)


def _json_value(value: Any) -> Any:
    """Return a value as JSON holds it; None for what is no text, number or list of these."""
    if isinstance(value, bool | int):
        return value
    if isinstance(value, str):
        return value.replace("\0", "").strip()[:MAX_TEXT_LENGTH]
    if isinstance(value, bytes):
        return _decoded(value)
    if isinstance(value, tuple | list):
        return [_json_value(one) for one in value] if len(value) <= MAX_VALUES else None
    try:
        number = float(value)
    except (TypeError, ValueError, ZeroDivisionError):
        return None
    return number if math.isfinite(number) else None


def _decoded(raw: bytes) -> str | None:
    try:
        found = raw.decode().replace("\0", "").strip()[:MAX_TEXT_LENGTH]
    except UnicodeDecodeError:
        return None
    return found if found.isprintable() else None


def _iptc(image: Image.Image) -> dict[str, Any]:
    if image.format not in ("JPEG", "MPO", "TIFF") or not isinstance(image, ImageFile.ImageFile):
        return {}
    return dict(_iptc_values(IptcImagePlugin.getiptcinfo(image) or {}))


def _iptc_values(found: Mapping[tuple[int, int], Any]) -> Iterator[tuple[str, Any]]:
    for place, name in _IPTC.items():
        raw = found.get(place)
        values = [
            _decoded(one)
            for one in (raw if isinstance(raw, list) else [raw])
            if isinstance(one, bytes)
        ]
        if values:
            yield name, values if name == "keywords" else values[0]


def _icc(image: Image.Image) -> dict[str, Any]:
    profile = image.info.get("icc_profile")
    if not isinstance(profile, bytes):
        return {}
    try:
        return {
            "description": ImageCms.getProfileDescription(
                ImageCms.ImageCmsProfile(BytesIO(profile))
            ).strip()
        }
    except (ImageCms.PyCMSError, OSError):
        return {}
