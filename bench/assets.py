"""A stored derivative of a photograph, beside a bare file answer."""

from __future__ import annotations

from uuid import uuid4

import psycopg
from PIL import Image

from bench.cases import Case, RequestSpec
from bench.serving import RunningServer
from bench.stage import BenchEnvironment
from bench.wire import exchange, request

SIZE = 4000, 3000
QUERY = "width=300&height=300&format=webp"


def stored_derivative(stage: BenchEnvironment, service: RunningServer, token: str) -> Case:
    """Store a photograph and a derivative of it, and return the case of asking for that."""
    target = f"/assets/{_store_photograph(stage)}?{QUERY}"
    derivative = exchange(service.address, request("GET", target, token=token))
    # The floor answers the same bytes, from a file of its own.
    (stage.folder / "uploads" / "made.webp").write_bytes(derivative)
    return Case(
        "asset derivative",
        0.6,
        1,
        lambda _: RequestSpec(target),
        lambda _: RequestSpec("/uploads/made.webp"),
    )


def _store_photograph(stage: BenchEnvironment) -> str:
    """Store a JPEG with the detail of a photograph in the default location, and its row."""
    file = str(uuid4())
    folder = stage.folder / "uploads"
    folder.mkdir(exist_ok=True)
    _picture().save(folder / f"{file}.jpg", quality=88)
    with psycopg.connect(stage.dsn, autocommit=True) as connection:
        connection.execute(
            "INSERT INTO system_files"
            " (id, storage, filename_disk, filename_download, type, width, height)"
            " VALUES (%s, 'local', %s, 'photograph.jpg', 'image/jpeg', %s, %s)",
            (file, f"{file}.jpg", *SIZE),
        )
    return file


def _picture() -> Image.Image:
    # Coarse and fine detail together compress about as well as a photograph does.
    coarse_noise = Image.effect_noise((SIZE[0] // 8, SIZE[1] // 8), 60).resize(
        SIZE, Image.Resampling.BICUBIC
    )
    fine_noise = Image.effect_noise(SIZE, 8)
    grey = Image.blend(coarse_noise, fine_noise, 0.3)
    return Image.merge("RGB", (grey, grey.transpose(Image.Transpose.FLIP_LEFT_RIGHT), grey))
