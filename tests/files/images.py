"""Images that the tests make."""

from __future__ import annotations

import struct
import zlib
from io import BytesIO
from typing import Any

from PIL import Image


def picture(kind: str = "JPEG", size: tuple[int, int] = (40, 20), **options: Any) -> bytes:
    """Return an image of a format of Pillow's."""
    buffer = BytesIO()
    Image.new("RGB", size, "teal").save(buffer, kind, **options)
    return buffer.getvalue()


def png_chunk(kind: bytes, data: bytes) -> bytes:
    """Return a chunk of a PNG: its length, its kind, its data and their checksum."""
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
