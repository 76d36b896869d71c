"""Images transformed by Pillow; runs only in the child processes of `cms/files/image_pool.py`."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from PIL import Image, ImageOps

from cms.files.image_colours import (
    flattened,
    has_transparency,
    in_editable_mode,
    in_srgb,
    profile_for,
)
from cms.files.image_info import upright_size
from cms.files.image_job import ImageError, RenderJob
from cms.files.image_steps import REDUCING_GAP, Size, apply_step, check_sides, scaled_size
from cms.transforms.steps import ImageStep, Resize
from cms.transforms.transform import FALLBACK_FORMAT, Transform

READABLE_FORMATS = ("JPEG", "PNG", "WEBP", "TIFF", "AVIF", "GIF")

_WITH_QUALITY: Iterable[str] = ("jpg", "webp", "avif")
_OPTIONS: Mapping[str, Mapping[str, Any]] = {
    "jpg": {"optimize": True, "progressive": True},
    "png": {"compress_level": 6},
    "webp": {"method": 4},
    "tiff": {"compression": "tiff_adobe_deflate"},
    # One thread, because the limit of processes is meant to limit the use of processors as well.
    "avif": {"speed": 8, "max_threads": 1},
    "gif": {"optimize": False},
}


def render(job: RenderJob) -> str:
    """Write the transformed image to the target and return its format.

    The formats are those of `MEDIA_TYPE_BY_FORMAT`. Of an animation it takes the first frame.
    Raises `ImageError`.
    """
    try:
        image = _transformed(job)
        check_sides(image.size, job.limits)
        return _save(image, job.target, job.transform)
    except MemoryError:
        raise ImageError("The image needs too much memory") from None


def _transformed(job: RenderJob) -> Image.Image:
    opened = _open(job)
    image = opened.image
    full_size = opened.full_size
    for step in job.transform.steps:
        image = apply_step(image, step, full_size, job.limits)
        # Only what was opened may be a draft.
        full_size = image.size
    return image


class _OpenedImage(NamedTuple):
    """An image that can be worked on, and its size in the file.

    A draft is smaller than that: it was decoded at a fraction of the size.
    """

    image: Image.Image
    full_size: Size


def _open(job: RenderJob) -> _OpenedImage:
    try:
        with Image.open(job.source, formats=READABLE_FORMATS) as image:
            if image.width * image.height > job.limits.max_pixels:
                raise ImageError(f"The image has more than {job.limits.max_pixels} pixels")
            full_size = upright_size(image, image.getexif())
            _draft(image, full_size, job.transform.steps)
            return _OpenedImage(_upright(image), full_size)
    except (ImageError, MemoryError):
        raise
    except Exception as fault:  # a broken image makes Pillow raise whatever its parser trips over
        raise ImageError("The image is broken, or not what its type says") from fault


def _draft(image: Image.Image, full_size: Size, steps: tuple[ImageStep, ...]) -> None:
    """Have a JPEG decoded at a fraction of its size where a resize comes first."""
    # Any other step needs all pixels: a trim of a draft would leave another border.
    if not steps or not isinstance(steps[0], Resize):
        return
    exact_width, exact_height = scaled_size(full_size, steps[0])
    width = math.ceil(exact_width * REDUCING_GAP)
    height = math.ceil(exact_height * REDUCING_GAP)
    # The size is that of the upright image, which may lie on its side in the file.
    if full_size == image.size:
        image.draft(None, (width, height))
    else:
        image.draft(None, (height, width))


def _upright(image: Image.Image) -> Image.Image:
    """Return the first frame in a mode that can be worked on, turned as its orientation says."""
    result = in_editable_mode(image)
    ImageOps.exif_transpose(result, in_place=True)
    return result


def _save(image: Image.Image, target: Path, transform: Transform) -> str:
    image_format = _format_of(image, transform)
    if image_format == "gif" or image.mode == "CMYK":
        image = in_srgb(image)
    if image_format == "jpg":
        image = flattened(image)
    options = dict(_OPTIONS[image_format])
    if image_format in _WITH_QUALITY:
        options["quality"] = transform.quality
    profile = profile_for(image, image_format)
    if profile:
        options["icc_profile"] = profile
    # Otherwise the encoders write the original's metadata, which tell places among other things.
    image = image.copy()
    image.info = {}
    encoder = "JPEG" if image_format == "jpg" else image_format.upper()
    image.save(target, encoder, **options)
    return image_format


def _format_of(image: Image.Image, transform: Transform) -> str:
    if transform.format != FALLBACK_FORMAT:
        return transform.format or "png"
    if has_transparency(image):
        return "png"
    return "jpg"
