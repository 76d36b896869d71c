"""Facts about an image: its size as viewers show it, and the metadata of cameras and editors.

Only heads of images are read, never pixels; runs only in the child processes of
`cms/files/image_pool.py`, whose limits hold for hostile heads.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from io import BytesIO
from pathlib import Path
from typing import Any

from PIL import ExifTags, Image, ImageCms, ImageFile, IptcImagePlugin

from cms import jsontext
from cms.files.image_job import ImageInfo

FORMATS = ("JPEG", "PNG", "GIF", "WEBP", "TIFF", "AVIF", "BMP", "ICO")
# Heads of any size are read; transforms have a limit of their own.
Image.MAX_IMAGE_PIXELS = None
# Browsers show what there is of a truncated image, too.
ImageFile.LOAD_TRUNCATED_IMAGES = True

MAX_METADATA_BYTES = 16 * 1024
MAX_TEXT_LENGTH = 2000
MAX_VALUES = 64

_SIDEWAYS = frozenset({5, 6, 7, 8})
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


def image_info_of(source: Path) -> ImageInfo:
    """Return the facts about an image; a broken one makes Pillow raise any exception."""
    with Image.open(source, formats=FORMATS) as image:
        return _read(image)


def upright_size(image: Image.Image, exif: Image.Exif) -> tuple[int, int]:
    """Return the width and height of an image that is turned as its orientation says."""
    # Pillow turns a TIFF itself.
    if image.format != "TIFF" and exif.get(ExifTags.Base.Orientation) in _SIDEWAYS:
        return image.height, image.width
    return image.size


def _read(image: Image.Image) -> ImageInfo:
    exif = _exif(image)
    groups = {
        "ifd0": _named_values(exif, ExifTags.TAGS),
        "exif": _named_values(exif.get_ifd(ExifTags.IFD.Exif), ExifTags.TAGS),
        "gps": _named_values(exif.get_ifd(ExifTags.IFD.GPSInfo), ExifTags.GPSTAGS),
        "iptc": _iptc(image),
        "icc": _icc(image),
    }
    metadata = {name: values for name, values in groups.items() if values}
    # Every list of files would include it.
    if len(jsontext.dumps(metadata)) > MAX_METADATA_BYTES:
        metadata = {}
    return ImageInfo(*upright_size(image, exif), metadata)


def _exif(image: Image.Image) -> Image.Exif:
    """Return the EXIF block of an image."""
    # A PNG may have it behind the pixels, which Pillow would decode to get there.
    if image.format == "PNG" and "exif" not in image.info:
        return Image.Exif()
    return image.getexif()


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
        values = [_decoded(raw) for raw in raw_values if isinstance(raw, bytes)]
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
