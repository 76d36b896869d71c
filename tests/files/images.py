"""Images that the tests make."""

from __future__ import annotations

from io import BytesIO
from typing import Any

from PIL import Image


def picture(kind: str = "JPEG", size: tuple[int, int] = (40, 20), **options: Any) -> bytes:
    """Return an image of a format of Pillow's."""
    buffer = BytesIO()
    Image.new("RGB", size, "teal").save(buffer, kind, **options)
    return buffer.getvalue()
