"""Assets: a stored derivative beside a bare file answer, and first transforms a second."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from uuid import uuid4

import psycopg
from PIL import Image

from bench.cases import Case, RequestSpec
from bench.rounds import Length, Result, Tokens, compare
from bench.serving import RunningServer
from bench.stage import BenchEnvironment
from bench.wire import exchange, request

SIZE = 4000, 3000
QUERY = "width=300&height=300&format=webp"
FIRST_TRANSFORMS = 40
CONCURRENCY = 4


@dataclass(frozen=True, slots=True)
class AssetResult:
    """A stored derivative on both sides, and first transforms of a 4000 x 3000 JPEG a second."""

    stored: Result
    first: float


def measure(
    stage: BenchEnvironment,
    service: RunningServer,
    floor: RunningServer,
    *,
    tokens: Tokens,
    length: Length,
) -> AssetResult:
    file = _store_photograph(stage)
    target = f"/assets/{file}?{QUERY}"
    derivative = exchange(service.address, request("GET", target, token=tokens.admin))
    # The floor answers the same bytes, from a file of its own.
    (stage.folder / "uploads" / "made.webp").write_bytes(derivative)
    case = Case(
        "asset derivative",
        0.6,
        1,
        lambda _: RequestSpec(target),
        lambda _: RequestSpec("/uploads/made.webp"),
    )
    stored = compare(case, service, floor, tokens=tokens, length=length)
    return AssetResult(stored, _transforms_per_second(service, file, tokens.admin))


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


def _transforms_per_second(service: RunningServer, file: str, token: str) -> float:
    """Return how many transforms that nobody has requested before are made in a second."""

    def request_transform(number: int) -> None:
        # A focal point of its own makes each transform a new one.
        target = f"/assets/{file}?{QUERY}&focal_point_x={number / 1000}"
        exchange(service.address, request("GET", target, token=token))

    with ThreadPoolExecutor(CONCURRENCY) as threads:
        list(threads.map(request_transform, range(CONCURRENCY)))  # the child processes start
        began = time.perf_counter()
        list(threads.map(request_transform, range(CONCURRENCY, CONCURRENCY + FIRST_TRANSFORMS)))
        return FIRST_TRANSFORMS / (time.perf_counter() - began)
