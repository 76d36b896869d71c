"""The colours of images: modes, transparency and colour profiles."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import cast

from PIL import Image, ImageCms

SRGB = ImageCms.createProfile("sRGB")
WHITE = (255, 255, 255)
CLEAR_WHITE = (*WHITE, 0)
MAX_SHADE_OF_16_BITS = 65535
_GREY_FORMATS = ("jpg", "png", "tiff")
"""The formats in which grey images are written with one channel."""


def in_editable_mode(image: Image.Image) -> Image.Image:
    """Return an image as L, LA, RGB, RGBA or CMYK."""
    # The file is closed before the first step reads a pixel.
    image.load()
    match image.mode:
        case "L" | "LA" | "RGB" | "RGBA" | "CMYK":
            # One colour or shade of a PNG or GIF counts as transparent; an alpha channel says the
            # same for every step.
            if "transparency" in image.info and image.mode in ("L", "RGB"):
                return image.convert("RGBA")
            return image
        case "1":
            return image.convert("L")
        case "I" | "F" | "I;16" | "I;16B" | "I;16L" | "I;16N":
            return _in_eight_bits(image)
        case _ if image.has_transparency_data:
            return image.convert("RGBA")
        case _:
            return image.convert("RGB")


def _in_eight_bits(image: Image.Image) -> Image.Image:
    """Return an image of grey in more bits with 8 bits.

    Shades of 16 bits keep their brightness. In wider types black and white can be any number: there
    the darkest shade becomes black, and the brightest white.
    """
    grey = image.convert("F")
    darkest, brightest = cast(tuple[float, float], grey.getextrema())
    if image.mode != "F" and darkest >= 0 and brightest <= MAX_SHADE_OF_16_BITS:
        darkest = 0
        brightest = MAX_SHADE_OF_16_BITS
    # An image of one shade has no range to divide by.
    factor = 255 / ((brightest - darkest) or 1)
    scaled = grey.point(lambda shade: shade * factor - darkest * factor)
    return with_info_of(image, scaled.convert("L"))


def with_info_of(image: Image.Image, result: Image.Image) -> Image.Image:
    """Return a result of Pillow with the information of its original, which Pillow drops."""
    result.info = image.info
    return result


def on_colours(image: Image.Image, change: Callable[[Image.Image], Image.Image]) -> Image.Image:
    """Change colours and leave transparency as it is."""
    if image.mode == "CMYK":
        image = in_srgb(image)
    if not image.mode.endswith("A"):
        return with_info_of(image, change(image))
    opaque_mode = image.mode[:-1]
    # Without its transparency, which a change would take for one more colour.
    result = change(image.convert(opaque_mode))
    result.putalpha(image.getchannel("A"))
    return with_info_of(image, result)


def in_srgb(image: Image.Image) -> Image.Image:
    """Convert colours to sRGB, by their profile where there is one that can be read."""
    mode = image.mode
    if mode == "CMYK":
        mode = "RGB"
    try:
        profile = ImageCms.ImageCmsProfile(io.BytesIO(image.info["icc_profile"]))
        result = ImageCms.profileToProfile(image, profile, SRGB, outputMode=mode)
        assert result is not None
    except (KeyError, ImageCms.PyCMSError, OSError, ValueError):
        # Without a profile, or with a broken one, colours count as sRGB already.
        result = image.convert(mode)
    result.info = dict(image.info)
    result.info.pop("icc_profile", None)
    return result


def has_transparency(image: Image.Image) -> bool:
    return image.mode.endswith("A") and image.getchannel("A").getextrema() != (255, 255)


def flattened(image: Image.Image) -> Image.Image:
    """Put what is transparent on white: a JPEG has no transparency."""
    if not image.mode.endswith("A"):
        return image
    opaque_mode = image.mode[:-1]
    result = Image.new("RGBA", image.size, WHITE)
    result.alpha_composite(image.convert("RGBA"))
    return with_info_of(image, result.convert(opaque_mode))


def profile_for(image: Image.Image, image_format: str) -> bytes | None:
    """Return the profile of an image, if it fits the colours that a format is written with."""
    profile: bytes | None = image.info.get("icc_profile")
    if not profile:
        return None
    written_space = "RGB"
    if image.mode in ("L", "LA") and image_format in _GREY_FORMATS:
        written_space = "GRAY"
    if _colour_space(profile) != written_space:
        return None
    return profile


def _colour_space(profile: bytes) -> str | None:
    try:
        return ImageCms.ImageCmsProfile(io.BytesIO(profile)).profile.xcolor_space.strip()
    except (OSError, ImageCms.PyCMSError):
        return None
