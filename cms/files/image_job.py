"""The jobs of a child process that reads or renders an image, and their answers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cms.transforms.transform import ImageLimits, Transform


@dataclass(frozen=True, slots=True)
class ReadJob:
    """The image whose size and metadata are read, and the limits."""

    source: Path
    limits: ImageLimits


@dataclass(frozen=True, slots=True)
class ImageInfo:
    """The size of an image in pixels, turned upright, and its metadata by group."""

    width: int | None = None
    height: int | None = None
    metadata: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class RenderJob:
    """The image to read, the file to write, the transform, and the limits."""

    source: Path
    target: Path
    transform: Transform
    limits: ImageLimits


@dataclass(frozen=True, slots=True)
class RenderAnswer:
    """The format of the image that was written, else the reason why there is none.

    A `fault` is for the log. With a `full_disk` the image may be as good as any other.
    """

    format: str = ""
    reason: str = ""
    fault: str = ""
    full_disk: bool = False


class ImageError(Exception):
    """An image that cannot be changed as asked; holds the reason for the client."""
