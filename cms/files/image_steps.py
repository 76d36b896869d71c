"""The steps of transforms, done with Pillow."""

from __future__ import annotations

import math
from typing import assert_never

from PIL import Image, ImageChops, ImageFilter, ImageOps

from cms.files.image_colours import CLEAR_WHITE, in_srgb, on_colours, with_info_of
from cms.files.image_job import ImageError
from cms.transforms.steps import (
    Blur,
    Extract,
    Flip,
    Flop,
    Focus,
    Greyscale,
    ImageStep,
    Negate,
    Resize,
    Rotate,
    Sharpen,
    Tint,
    Trim,
)
from cms.transforms.transform import CENTER, ImageLimits

REDUCING_GAP = 2.0
"""An image is first reduced roughly to this many times its target, and then resampled well."""

Size = tuple[int, int]
ExactSize = tuple[float, float]
"""A size before it is rounded to pixels."""

Box = tuple[float, float, float, float]
"""The left, upper, right and lower edge of a part of an image."""

# Without a loss, and faster than a rotation by any angle.
_RIGHT_ANGLES = {
    # Pillow counts against the clock: its 270 degrees are 90 with it.
    90.0: Image.Transpose.ROTATE_270,
    180.0: Image.Transpose.ROTATE_180,
    270.0: Image.Transpose.ROTATE_90,
}


def apply_step(
    image: Image.Image, step: ImageStep, full_size: Size, limits: ImageLimits
) -> Image.Image:
    """Do a step; `full_size` is the image's size, of which a draft is a fraction.

    Raises `ImageError`.
    """
    match step:
        case Resize():
            return _resized(image, step, full_size, limits)
        case Extract():
            return _extracted(image, step)
        case Rotate(angle):
            return _rotated(image, angle)
        case Flip():
            return ImageOps.flip(image)
        case Flop():
            return ImageOps.mirror(image)
        case Greyscale():
            return on_colours(image, lambda colours: colours.convert("L"))
        case Blur(sigma):
            return image.filter(ImageFilter.GaussianBlur(sigma))
        case Sharpen(sigma):
            return image.filter(ImageFilter.UnsharpMask(sigma, percent=150, threshold=0))
        case Trim(threshold):
            return _trimmed(image, threshold)
        case Negate():
            return on_colours(image, ImageChops.invert)
        case Tint():
            return on_colours(image, lambda colours: _tinted(colours, step))
        case _:
            assert_never(step)


def check_sides(size: Size, limits: ImageLimits) -> None:
    """Raise `ImageError` for a size beyond the limit."""
    if max(size) > limits.max_side:
        raise ImageError(f"The result has more than {limits.max_side} pixels on a side")


def scaled_size(size: Size, resize: Resize) -> ExactSize:
    """Return the size to which the whole image is scaled, before it is cut or put into a frame."""
    width, height = size
    # A side that is not asked for sets no bound.
    across = (resize.width or math.inf) / width
    down = (resize.height or math.inf) / height
    if resize.width is None or resize.height is None or resize.fit in ("contain", "inside"):
        factor = min(across, down)
    # Otherwise the image fills the frame, and one of its sides is longer.
    else:
        factor = max(across, down)
    if not resize.enlarge:
        factor = min(factor, 1.0)
    return width * factor, height * factor


def _resized(
    image: Image.Image, resize: Resize, full_size: Size, limits: ImageLimits
) -> Image.Image:
    exact_size = scaled_size(full_size, resize)
    size = _in_pixels(exact_size)
    if resize.width is None or resize.height is None:
        return _scaled(image, size, limits)
    frame = (resize.width, resize.height)
    match resize.fit:
        case "cover":
            # Cut before it is scaled: no pixel is computed that nobody sees.
            # Smaller than the frame where the image must not be enlarged.
            visible_size = (min(frame[0], size[0]), min(frame[1], size[1]))
            box = _visible_box(image.size, exact_size, visible_size, resize.focus or CENTER)
            return _resampled(image, visible_size, box)
        case "contain":
            result = _scaled(image, size, limits)
            if size == frame:
                return result
            return _padded(result, frame)
        case _:
            return _scaled(image, size, limits)


def _in_pixels(exact_size: ExactSize) -> Size:
    width, height = exact_size
    # A long and narrow image may be scaled to less than a pixel.
    return max(round(width), 1), max(round(height), 1)


def _scaled(image: Image.Image, size: Size, limits: ImageLimits) -> Image.Image:
    check_sides(size, limits)
    return _resampled(image, size, (0, 0, *image.size))


def _resampled(image: Image.Image, size: Size, box: Box) -> Image.Image:
    return image.resize(size, Image.Resampling.LANCZOS, box=box, reducing_gap=REDUCING_GAP)


def _visible_box(image_size: Size, exact_size: ExactSize, visible_size: Size, focus: Focus) -> Box:
    """Return the part of an image that a cover shows.

    The focal point is in its middle, or as near to it as the edges of the image allow.
    """
    ranges = []
    for side, exact_side, visible_side, center in zip(
        image_size, exact_size, visible_size, focus, strict=True
    ):
        # In pixels of the image before it is scaled.
        length = min(side * visible_side / exact_side, side)
        start = min(max(center * side - length / 2, 0), side - length)
        # Sums of fractions may come out a little beyond the edge, which Pillow refuses.
        ranges.append((start, min(start + length, side)))
    (left, right), (top, bottom) = ranges
    return left, top, right, bottom


def _padded(image: Image.Image, size: Size) -> Image.Image:
    """Put an image into the middle of a transparent one."""
    inner = in_srgb(image).convert("RGBA")
    result = Image.new("RGBA", size, CLEAR_WHITE)
    left = (result.width - inner.width) // 2
    top = (result.height - inner.height) // 2
    result.paste(inner, (left, top))
    return with_info_of(image, result)


def _extracted(image: Image.Image, extract: Extract) -> Image.Image:
    right = extract.left + extract.width
    bottom = extract.top + extract.height
    if right > image.width or bottom > image.height:
        size = f"{image.width} x {image.height}"
        raise ImageError(f"extract reaches beyond the image, which has {size} pixels")
    return image.crop((extract.left, extract.top, right, bottom))


def _rotated(image: Image.Image, angle: float) -> Image.Image:
    right_angle = _RIGHT_ANGLES.get(angle)
    if right_angle is not None:
        return image.transpose(right_angle)
    # The corners that a turned image leaves are transparent.
    with_alpha = in_srgb(image).convert("RGBA")
    # Pillow turns the other way round.
    turned = with_alpha.rotate(-angle, Image.Resampling.BICUBIC, expand=True, fillcolor=CLEAR_WHITE)
    return with_info_of(image, turned)


def _trimmed(image: Image.Image, threshold: float) -> Image.Image:
    # The upper left corner shows the colour of the border.
    with_alpha = image.convert("RGBA")
    corner = with_alpha.getpixel((0, 0))
    background = Image.new("RGBA", with_alpha.size, corner)
    bands = ImageChops.difference(with_alpha, background).split()
    # A pixel differs as much as the band in which it differs most.
    difference = bands[0]
    for band in bands[1:]:
        difference = ImageChops.lighter(difference, band)
    # The smallest box around all pixels that differ; none for an image of one colour.
    box = difference.point(lambda shade: 255 if shade > threshold else 0).getbbox()
    if box is None:
        return image
    return image.crop(box)


def _tinted(colours: Image.Image, tint: Tint) -> Image.Image:
    # Brightness is one channel of YCbCr; the hue is the two others.
    luma = colours.convert("L")
    pixel = Image.new("RGB", (1, 1), (tint.red, tint.green, tint.blue)).convert("YCbCr")
    _, blue, red = pixel.getpixel((0, 0))  # type: ignore[misc]
    blue_band = Image.new("L", luma.size, blue)
    red_band = Image.new("L", luma.size, red)
    return Image.merge("YCbCr", (luma, blue_band, red_band)).convert("RGB")
