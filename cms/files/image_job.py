"""What a child process is told to render, and what it answers."""

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

    A `fault` is for the log.
    """

    format: str = ""
    reason: str = ""
    fault: str = ""


class ImageError(Exception):
    """An image that cannot be changed as asked; holds the reason for the client."""
