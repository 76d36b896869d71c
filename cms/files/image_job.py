"""The job of a child process that renders an image, and its answer."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from cms.transforms.transform import ImageLimits, Transform


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
