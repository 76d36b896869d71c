"""Pictures of four colours, by which a test sees what is where."""

from __future__ import annotations

import io
from typing import Any

from PIL import Image

COLOURS = {"red": (255, 0, 0), "green": (0, 255, 0), "blue": (0, 0, 255), "white": (255, 255, 255)}
CORNERS = ("red", "green", "blue", "white")
"""The colours of the quarters: upper left, upper right, lower left, lower right."""


def quarters(size: tuple[int, int] = (80, 40), mode: str = "RGB") -> Image.Image:
    picture = Image.new("RGB", size)
    across = size[0] // 2
    down = size[1] // 2
    for index, name in enumerate(CORNERS):
        left = index % 2 * across
        top = index // 2 * down
        picture.paste(COLOURS[name], (left, top, left + across, top + down))
    return picture.convert(mode)


def corners(picture: Image.Image) -> tuple[str, ...]:
    """Return which colours the quarters of a picture have."""
    colours = picture.convert("RGB")
    width, height = colours.size
    points = [(x * width // 4, y * height // 4) for y in (1, 3) for x in (1, 3)]
    return tuple(_nearest(pixel(colours, point)) for point in points)


def pixel(picture: Image.Image, point: tuple[int, int]) -> tuple[int, ...]:
    colour = picture.getpixel(point)
    assert colour is not None
    return colour if isinstance(colour, tuple) else (int(colour),)


def _nearest(colour: tuple[int, ...]) -> str:
    return min(
        COLOURS,
        key=lambda name: sum(abs(a - b) for a, b in zip(COLOURS[name], colour, strict=True)),
    )


def encoded(picture: Image.Image, form: str, **options: Any) -> bytes:
    buffer = io.BytesIO()
    picture.save(buffer, form, **options)
    return buffer.getvalue()


def decoded(content: bytes) -> Image.Image:
    image = Image.open(io.BytesIO(content))
    image.load()
    return image
