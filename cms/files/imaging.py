"""Images transformed by Pillow; runs only in the child processes of `cms/files/image_pool.py`."""

from __future__ import annotations

import io
import math
from collections.abc import Iterable
from pathlib import Path
from typing import Any, assert_never, cast

from PIL import Image, ImageChops, ImageCms, ImageFilter, ImageOps

from cms.transforms.steps import (
    Blur,
    Extract,
    Flip,
    Flop,
    Greyscale,
    ImageStep,
    Negate,
    Resize,
    Rotate,
    Sharpen,
    Tint,
    Trim,
)
from cms.transforms.transform import CENTER, FALLBACK_FORMAT, ImageLimits, Transform

READABLE_FORMATS = ("JPEG", "PNG", "WEBP", "TIFF", "AVIF", "GIF")
WHITE = (255, 255, 255)
# An image is first reduced roughly to this many times its target, and then resampled well.
REDUCING_GAP = 2.0
SRGB = ImageCms.createProfile("sRGB")

Picture = Image.Image


class ImageError(Exception):
    """An image that cannot be changed as asked; holds the reason for the client."""


def render(source: Path, target: Path, transform: Transform, limits: ImageLimits) -> str:
    """Write the transformed image to `target` and return its format, a key of `MEDIA_TYPES`.

    Of an animation it takes the first frame. Raises `ImageError`.
    """
    try:
        picture, whole = _open(source, transform.steps, limits)
        for number, step in enumerate(transform.steps):
            picture = _apply_step(picture, step, picture.size if number else whole, limits)
        if max(picture.size) > limits.max_side:
            raise ImageError(f"The result has more than {limits.max_side} pixels on a side")
        return _save(picture, target, transform)
    except MemoryError:
        raise ImageError("The image needs too much memory") from None


def _open(
    source: Path, steps: tuple[ImageStep, ...], limits: ImageLimits
) -> tuple[Picture, tuple[int, int]]:
    """Return an image as it is worked on, and the size that it has when it is not decoded as a
    draft.
    """
    Image.MAX_IMAGE_PIXELS = None  # the limit is checked here, before anything is decoded
    try:
        with Image.open(source, formats=READABLE_FORMATS) as image:
            _check_size(image, limits)
            whole = _upright_size(image)
            _draft(image, whole, steps)
            return _upright(image), whole
    except (ImageError, MemoryError):
        raise
    except Exception as fault:  # a broken image makes Pillow raise whatever its parser trips over
        raise ImageError("The image is broken, or not what its type says") from fault


def _check_size(image: Picture, limits: ImageLimits) -> None:
    if image.width * image.height > limits.max_pixels:
        raise ImageError(f"The image has more than {limits.max_pixels} pixels")


def _upright_size(image: Picture) -> tuple[int, int]:
    turned = (
        image.getexif().get(0x0112, 1) in (5, 6, 7, 8) and image.format != "TIFF"
    )  # which Pillow turns itself
    return (image.height, image.width) if turned else image.size


def _draft(image: Picture, whole: tuple[int, int], steps: tuple[ImageStep, ...]) -> None:
    """Have a JPEG decoded at a fraction of its size where a resize comes first."""
    if steps and isinstance(steps[0], Resize):
        width, height = (math.ceil(side * REDUCING_GAP) for side in _scaled(*whole, steps[0]))
        image.draft(None, (width, height) if whole == image.size else (height, width))


def _upright(image: Picture) -> Picture:
    """Return the first frame in a mode that can be worked on, turned as its orientation says."""
    picture = _in_editable_mode(image)
    ImageOps.exif_transpose(picture, in_place=True)
    return picture


def _in_editable_mode(image: Picture) -> Picture:
    """Return an image as L, LA, RGB, RGBA or CMYK."""
    image.load()
    match image.mode:
        case "L" | "LA" | "RGB" | "RGBA" | "CMYK":
            if "transparency" in image.info and image.mode in ("L", "RGB"):
                return image.convert("RGBA")
            return image
        case "1":
            return image.convert("L")
        case "I" | "F" | "I;16" | "I;16B" | "I;16L" | "I;16N":
            return _eight_bits(image)
        case _:
            return image.convert("RGBA" if image.has_transparency_data else "RGB")


def _eight_bits(image: Picture) -> Picture:
    """Bring grey of more bits to 8: 16 bits from black to white, wider ones from their darkest to
    their brightest.
    """
    grey = image.convert("F")
    darkest, brightest = cast(tuple[float, float], grey.getextrema())
    if image.mode != "F" and darkest >= 0 and brightest <= 65535:
        darkest = 0
        brightest = 65535
    # An image of one shade has no range to divide by.
    factor = 255 / ((brightest - darkest) or 1)
    scaled = grey.point(lambda value: value * factor - darkest * factor)
    return _with_info(scaled.convert("L"), image)


# Steps


def _apply_step(
    picture: Picture, step: ImageStep, whole: tuple[int, int], limits: ImageLimits
) -> Picture:
    """Do a step; `whole` is the image's size, of which a draft is a fraction."""
    match step:
        case Resize():
            return _resized(picture, step, whole, limits)
        case Extract(left, top, width, height):
            if left + width > picture.width or top + height > picture.height:
                size = f"{picture.width} x {picture.height}"
                raise ImageError(f"extract reaches beyond the image, which has {size} pixels")
            return picture.crop((left, top, left + width, top + height))
        case Rotate(angle):
            return _rotated(picture, angle)
        case Flip():
            return ImageOps.flip(picture)
        case Flop():
            return ImageOps.mirror(picture)
        case Greyscale():
            return _on_colours(picture, lambda colours: colours.convert("L"))
        case Blur(sigma):
            return picture.filter(ImageFilter.GaussianBlur(sigma))
        case Sharpen(sigma):
            return picture.filter(ImageFilter.UnsharpMask(sigma, percent=150, threshold=0))
        case Trim(threshold):
            return _trimmed(picture, threshold)
        case Negate():
            return _on_colours(picture, ImageChops.invert)
        case Tint(red, green, blue):
            return _on_colours(picture, lambda colours: _tinted(colours, (red, green, blue)))
        case _:
            assert_never(step)


def _on_colours(picture: Picture, change: Any) -> Picture:
    """Change colours and leave transparency as it is."""
    if picture.mode == "CMYK":
        picture = _in_srgb(picture)
    if not picture.mode.endswith("A"):
        return _with_info(change(picture), picture)
    result = change(picture.convert(picture.mode[:-1]))
    result.putalpha(picture.getchannel("A"))
    return _with_info(result, picture)


def _with_info(result: Picture, picture: Picture) -> Picture:
    result.info = picture.info
    return result


def _scaled(width: int, height: int, resize: Resize) -> tuple[float, float]:
    """Return the size to which the whole image is scaled, whatever is cut off or put around it
    afterwards.
    """
    across = (resize.width or math.inf) / width
    down = (resize.height or math.inf) / height
    if resize.width is None or resize.height is None or resize.fit in ("contain", "inside"):
        factor = min(across, down)
    else:
        factor = max(across, down)
    if not resize.enlarge:
        factor = min(factor, 1.0)
    return width * factor, height * factor


def _resized(
    picture: Picture, resize: Resize, whole: tuple[int, int], limits: ImageLimits
) -> Picture:
    width, height = _scaled(*whole, resize)
    if resize.width is None or resize.height is None or resize.fit != "cover":
        size = max(round(width), 1), max(round(height), 1)
        if max(size) > limits.max_side:
            raise ImageError(f"The result has more than {limits.max_side} pixels on a side")
        result = _resampled(picture, size, (0, 0, *picture.size))
        wanted = resize.width or 0, resize.height or 0
        return (
            _padded(result, wanted) if resize.fit == "contain" and result.size != wanted else result
        )
    shown = min(resize.width, max(round(width), 1)), min(resize.height, max(round(height), 1))
    return _resampled(
        picture, shown, _window(picture.size, (width, height), shown, resize.focus or CENTER)
    )


def _window(
    whole: tuple[int, int],
    scaled: tuple[float, float],
    shown: tuple[int, int],
    focus: tuple[float, float],
) -> tuple[float, float, float, float]:
    """Return the part of an image that a cover shows: as near around the focal point as the edges
    allow.
    """
    starts, ends = [], []
    for side, full, kept, at in zip(whole, scaled, shown, focus, strict=True):
        length = min(side * kept / full, side)
        start = min(max(at * side - length / 2, 0), side - length)
        starts.append(start)
        ends.append(min(start + length, side))
    return starts[0], starts[1], ends[0], ends[1]


def _resampled(
    picture: Picture, size: tuple[int, int], box: tuple[float, float, float, float]
) -> Picture:
    return picture.resize(size, Image.Resampling.LANCZOS, box=box, reducing_gap=REDUCING_GAP)


def _padded(picture: Picture, size: tuple[int, int]) -> Picture:
    """Put an image into the middle of a transparent one."""
    inner = _in_srgb(picture).convert("RGBA")
    result = Image.new("RGBA", size, (*WHITE, 0))
    result.paste(inner, ((size[0] - inner.width) // 2, (size[1] - inner.height) // 2))
    return _with_info(result, picture)


_RIGHT_ANGLES = {
    90.0: Image.Transpose.ROTATE_270,
    180.0: Image.Transpose.ROTATE_180,
    270.0: Image.Transpose.ROTATE_90,
}


def _rotated(picture: Picture, angle: float) -> Picture:
    if turn := _RIGHT_ANGLES.get(angle):
        return picture.transpose(turn)
    whole = _in_srgb(picture).convert("RGBA")
    turned = whole.rotate(-angle, Image.Resampling.BICUBIC, expand=True, fillcolor=(*WHITE, 0))
    return _with_info(turned, picture)


def _trimmed(picture: Picture, threshold: float) -> Picture:
    whole = picture.convert("RGBA")
    edge = Image.new("RGBA", whole.size, whole.getpixel((0, 0)))
    bands = ImageChops.difference(whole, edge).split()
    differs = bands[0]
    for band in bands[1:]:
        differs = ImageChops.lighter(differs, band)
    box = differs.point(lambda value: 255 if value > threshold else 0).getbbox()
    return picture.crop(box) if box else picture


def _tinted(colours: Picture, tint: tuple[int, int, int]) -> Picture:
    luma = colours.convert("L")
    _, blue, red = Image.new("RGB", (1, 1), tint).convert("YCbCr").getpixel((0, 0))  # type: ignore[misc]
    chroma = [Image.new("L", luma.size, shade) for shade in (blue, red)]
    return Image.merge("YCbCr", (luma, *chroma)).convert("RGB")


# Colours and files


def _in_srgb(picture: Picture) -> Picture:
    """Convert colours to sRGB, by their profile where there is one that can be read."""
    mode = "RGB" if picture.mode == "CMYK" else picture.mode
    try:
        profile = ImageCms.ImageCmsProfile(io.BytesIO(picture.info["icc_profile"]))
        result = ImageCms.profileToProfile(picture, profile, SRGB, outputMode=mode)
        assert result is not None
    except (KeyError, ImageCms.PyCMSError, OSError, ValueError):
        result = picture.convert(mode)
    result.info = {key: value for key, value in picture.info.items() if key != "icc_profile"}
    return result


def _profile(picture: Picture, image_format: str) -> bytes | None:
    """Return the profile of an image's colours, if it describes what the encoder of a format
    writes.
    """
    image = picture.info.get("icc_profile")
    writes_grey = picture.mode in ("L", "LA") and image_format in ("jpg", "png", "tiff")
    return image if image and _colour_space(image) == ("GRAY" if writes_grey else "RGB") else None


def _colour_space(profile: bytes) -> str | None:
    try:
        return ImageCms.ImageCmsProfile(io.BytesIO(profile)).profile.xcolor_space.strip()
    except (OSError, ImageCms.PyCMSError):
        return None


def _save(picture: Picture, target: Path, transform: Transform) -> str:
    image_format = transform.format or "png"
    if image_format == FALLBACK_FORMAT:
        image_format = "png" if _has_transparency(picture) else "jpg"
    if image_format == "gif" or picture.mode == "CMYK":
        picture = _in_srgb(picture)
    if image_format == "jpg":
        picture = _flattened(picture)
    options = dict(_OPTIONS[image_format])
    if image_format in _WITH_QUALITY:
        options["quality"] = transform.quality
    if profile := _profile(picture, image_format):
        options["icc_profile"] = profile
    picture = picture.copy()  # else the encoders write the original's metadata, places among them
    picture.info = {}
    picture.save(target, _ENCODERS[image_format], **options)
    return image_format


def _has_transparency(picture: Picture) -> bool:
    return picture.mode.endswith("A") and picture.getchannel("A").getextrema() != (255, 255)


def _flattened(picture: Picture) -> Picture:
    """Put what is transparent on white: a JPEG has no transparency."""
    if not picture.mode.endswith("A"):
        return picture
    result = Image.new("RGBA", picture.size, WHITE)
    result.alpha_composite(picture.convert("RGBA"))
    return _with_info(result.convert(picture.mode[:-1]), picture)


_ENCODERS = {
    "jpg": "JPEG",
    "png": "PNG",
    "webp": "WEBP",
    "tiff": "TIFF",
    "avif": "AVIF",
    "gif": "GIF",
}
_WITH_QUALITY: Iterable[str] = ("jpg", "webp", "avif")
_OPTIONS: dict[str, dict[str, Any]] = {
    "jpg": {"optimize": True, "progressive": True},
    "png": {"compress_level": 6},
    "webp": {"method": 4},
    "tiff": {"compression": "tiff_adobe_deflate"},
    "avif": {"speed": 8, "max_threads": 1},
    "gif": {"optimize": False},
}
