"""Real images in, real images out: what Pillow is made to do with each kind."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from PIL import Image, ImageCms

from cms.files.image_job import ImageError, RenderJob
from cms.files.image_rendering import render
from cms.transforms.transform import (
    ImageLimits,
    Transform,
    TransformRules,
    parse_transform,
    resolve_transform,
)
from tests.files.images import png_chunk
from tests.files.pictures import CORNERS, corners, decoded, encoded, pixel, quarters

LIMITS = ImageLimits(1_000_000, 500, 5.0)
ORIENTATION = 0x0112
# Where the quarters of an upright picture lie in one that is stored with this orientation.
STORED = {
    1: None,
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_90,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_270,
}

Change = Callable[..., Image.Image]


@pytest.fixture
def change(tmp_path: Path) -> Change:
    """Transform an encoded image by parameters and return the image that comes out."""

    def change(content: bytes, media_type: str = "image/png", **parameters: object) -> Image.Image:
        source = tmp_path / "in"
        target = tmp_path / "out"
        source.write_bytes(content)
        resolved = resolve_transform(
            parse_transform(parameters, TransformRules()), media_type, focus=None, accept=""
        )
        render(RenderJob(source, target, resolved.transform, LIMITS))
        return decoded(target.read_bytes())

    return change


PNG = encoded(quarters(), "PNG")


@pytest.mark.parametrize(
    ("parameters", "size"),
    [
        ({"width": 40}, (40, 20)),
        ({"height": 10}, (20, 10)),
        ({"width": 30, "height": 30}, (30, 30)),
        ({"width": 30, "height": 30, "fit": "contain"}, (30, 30)),
        ({"width": 30, "height": 30, "fit": "inside"}, (30, 15)),
        ({"width": 30, "height": 30, "fit": "outside"}, (60, 30)),
        ({"width": 160}, (160, 80)),
        ({"width": 160, "withoutEnlargement": True}, (80, 40)),
        ({"width": 160, "height": 20, "withoutEnlargement": True}, (80, 20)),
        ({"width": 160, "height": 160, "fit": "inside", "withoutEnlargement": True}, (80, 40)),
        ({"width": 160, "height": 160, "fit": "contain", "withoutEnlargement": True}, (160, 160)),
        ({"width": 1}, (1, 1)),
    ],
)
def test_each_fit_gives_its_size(
    change: Change, parameters: dict[str, Any], size: tuple[int, int]
) -> None:
    assert change(PNG, **parameters).size == size


@pytest.mark.parametrize(
    ("x", "y", "seen"),
    [
        (0.0, 0.5, ("red", "red", "blue", "blue")),
        (1.0, 0.5, ("green", "green", "white", "white")),
        (0.5, 0.5, CORNERS),
    ],
)
def test_a_cover_shows_what_is_around_the_focal_point(
    change: Change, x: float, y: float, seen: tuple[str, ...]
) -> None:
    image = change(PNG, width=20, height=20, focal_point_x=x, focal_point_y=y)
    assert corners(image) == seen


@pytest.mark.quick(8)
@pytest.mark.parametrize("orientation", STORED)
@pytest.mark.parametrize("form", ["JPEG", "PNG", "WEBP", "TIFF", "AVIF"])
def test_every_orientation_comes_out_upright(change: Change, orientation: int, form: str) -> None:
    turn = STORED[orientation]
    stored = quarters((160, 80)).transpose(turn) if turn is not None else quarters((160, 80))
    exif = Image.Exif()
    exif[ORIENTATION] = orientation
    image = change(encoded(stored, form, exif=exif), f"image/{form.lower()}", width=40)
    assert image.size == (40, 20)
    assert corners(image) == CORNERS
    assert image.getexif().get(ORIENTATION, 1) == 1


def test_the_size_of_a_draft_is_that_of_the_whole_image(change: Change) -> None:
    content = encoded(quarters((801, 603)), "JPEG")
    assert change(content, "image/jpeg", width=50).size == (50, 38)
    assert change(content, "image/jpeg", height=37).size == (49, 37)


@pytest.mark.parametrize(
    ("form", "file_format"), [("jpg", "JPEG"), ("webp", "WEBP"), ("tiff", "TIFF"), ("avif", "AVIF")]
)
@pytest.mark.parametrize("mode", ["RGB", "RGBA", "L", "LA", "P", "1"])
def test_every_mode_goes_into_every_format(
    change: Change, form: str, file_format: str, mode: str
) -> None:
    image = change(encoded(quarters(mode=mode), "PNG"), format=form, width=60)
    assert image.format == file_format
    assert image.size == (60, 30)


def test_what_is_transparent_is_white_in_a_jpeg(change: Change) -> None:
    clear = Image.new("RGBA", (20, 20), (0, 0, 0, 0))
    assert min(pixel(change(encoded(clear, "PNG"), format="jpg"), (10, 10))) > 250
    palette = quarters(mode="P")
    content = encoded(palette, "PNG", transparency=pixel(palette, (5, 5))[0])
    assert corners(change(content, format="jpg")) == ("white", "green", "blue", "white")


def test_what_is_transparent_stays_so_where_the_format_can(change: Change) -> None:
    clear = encoded(Image.new("RGBA", (20, 20), (10, 20, 30, 0)), "PNG")
    for form in ("png", "webp", "avif", "tiff"):
        image = change(clear, format=form, width=10).convert("RGBA")
        assert image.getchannel("A").getextrema() == (0, 0)
    assert change(clear, format="auto", width=10).format == "PNG"
    assert change(PNG, format="auto", width=10).format == "JPEG"


def test_a_contained_image_stands_on_nothing(change: Change) -> None:
    image = change(PNG, width=40, height=40, fit="contain").convert("RGBA")
    assert pixel(image, (20, 2)) == (255, 255, 255, 0)
    assert pixel(change(PNG, width=40, height=40, fit="contain", format="jpg"), (20, 2)) >= (
        240,
        240,
        240,
    )


@pytest.mark.parametrize("form", ["png", "jpg", "webp"])
def test_sixteen_bits_of_grey_come_out_as_eight(change: Change, form: str) -> None:
    grey = Image.new("I;16", (20, 20), 0x8000)
    image = change(encoded(grey, "PNG"), format=form, width=10).convert("L")
    assert abs(pixel(image, (5, 5))[0] - 128) <= 2


def test_print_colours_become_screen_colours(change: Change) -> None:
    content = encoded(quarters(mode="CMYK"), "JPEG", quality=95)
    for form in ("jpg", "webp", "png"):
        image = change(content, "image/jpeg", format=form, width=60)
        assert image.mode == "RGB"
        assert corners(image) == CORNERS


PROFILE = ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes()


@pytest.mark.parametrize("form", ["jpg", "png", "webp", "tiff", "avif"])
def test_a_profile_is_kept(change: Change, form: str) -> None:
    content = encoded(quarters(), "PNG", icc_profile=PROFILE)
    assert change(content, format=form, width=20).info["icc_profile"] == PROFILE


def test_a_profile_of_other_colours_is_left_out(change: Change) -> None:
    content = encoded(quarters(mode="L"), "PNG", icc_profile=PROFILE)
    assert "icc_profile" not in change(content, width=20).info
    broken = encoded(quarters(), "PNG", icc_profile=b"not a profile")
    assert "icc_profile" not in change(broken, width=20).info


def test_metadata_does_not_come_along(change: Change) -> None:
    exif = Image.Exif()
    exif[0x010E] = "a secret place"
    content = encoded(quarters(), "JPEG", exif=exif, comment=b"a secret word")
    for form in ("jpg", "webp", "png", "tiff"):
        image = change(content, "image/jpeg", format=form, width=20)
        assert "secret" not in repr(image.info) + repr(dict(image.getexif()))
    tagged = encoded(quarters(), "TIFF", tiffinfo={700: b"a secret place"})
    assert 700 not in change(tagged, "image/tiff", transforms=[["trim"]]).getexif()


@pytest.mark.parametrize("form", ["GIF", "WEBP", "PNG"])
def test_of_an_animation_comes_the_first_frame(change: Change, form: str) -> None:
    frames = [Image.new("RGB", (20, 20), colour) for colour in ("blue", "red")]
    content = encoded(frames[0], form, save_all=True, append_images=frames[1:], duration=100)
    image = change(content, f"image/{form.lower()}", width=10)
    assert image.format == form
    assert getattr(image, "n_frames", 1) == 1
    assert set(corners(image)) == {"blue"}


@pytest.mark.parametrize(
    ("operation", "seen"),
    [
        (["flip"], ("blue", "white", "red", "green")),
        (["flop"], ("green", "red", "white", "blue")),
        (["rotate", 90], ("blue", "red", "white", "green")),
        (["rotate", 180], ("white", "blue", "green", "red")),
        (["extract", {"left": 0, "top": 0, "width": 40, "height": 20}], ("red",) * 4),
        (["blur", 1], CORNERS),
        (["sharpen", 1], CORNERS),
    ],
)
def test_an_operation_has_the_documented_effect(
    change: Change, operation: list[object], seen: tuple[str, ...]
) -> None:
    assert corners(change(PNG, transforms=[operation])) == seen


def test_colours_are_changed(change: Change) -> None:
    assert change(PNG, transforms=[["greyscale"]]).mode == "L"
    assert pixel(change(PNG, transforms=[["negate"]]), (60, 30)) == (0, 0, 0)
    red, _, blue = pixel(change(PNG, transforms=[["greyscale"], ["tint", "#0000ff"]]), (5, 5))
    assert blue > red
    clear = encoded(Image.new("RGBA", (9, 9), (0, 0, 0, 77)), "PNG")
    assert pixel(change(clear, transforms=[["negate"]]), (4, 4)) == (255, 255, 255, 77)


def test_an_odd_angle_leaves_transparent_corners(change: Change) -> None:
    image = change(PNG, transforms=[["rotate", 45]])
    assert image.size[0] > 80
    assert pixel(image, (0, 0)) == (255, 255, 255, 0)


def test_edges_of_one_colour_are_trimmed(change: Change) -> None:
    framed = Image.new("RGB", (100, 100), "yellow")
    framed.paste(quarters(), (10, 20))
    image = change(encoded(framed, "PNG"), transforms=[["trim"]])
    assert image.size == (80, 40)
    plain = encoded(Image.new("RGB", (9, 9), "red"), "PNG")
    assert change(plain, transforms=[["trim"]]).size == (9, 9)


def bomb(side: int) -> bytes:
    """A PNG of a few bytes whose header declares this size."""
    head = png_chunk(b"IHDR", struct.pack(">IIBBBBB", side, side, 8, 2, 0, 0, 0))
    return (
        b"\x89PNG\r\n\x1a\n"
        + head
        + png_chunk(b"IDAT", zlib.compress(b"\0" * 1000))
        + png_chunk(b"IEND", b"")
    )


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "GIF", "TIFF"])
@pytest.mark.parametrize("share", [0.67, 0.999])
def test_a_truncated_image_is_shown_as_far_as_it_goes(
    change: Change, kind: str, share: float
) -> None:
    whole = encoded(quarters((300, 200)), kind)
    image = change(whole[: int(len(whole) * share)], f"image/{kind.lower()}", width=30)
    assert image.size == (30, 20)
    assert corners(image)[:2] == corners(quarters())[:2]


def test_a_jpeg_without_its_end_mark_is_shown_whole(change: Change) -> None:
    image = change(encoded(quarters((300, 200)), "JPEG")[:-2], "image/jpeg", width=30)
    assert corners(image) == corners(quarters())


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "broken"),
        (b"no image at all", "broken"),
        (PNG[:40], "broken"),
        (encoded(quarters(), "WEBP")[:-20], "broken"),
        (bomb(1001), "more than 1000000 pixels"),
        (bomb(2**31 - 1), "more than 1000000 pixels|broken"),
        (b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n", "broken"),
    ],
)
def test_what_is_no_sound_image_is_refused(change: Change, content: bytes, reason: str) -> None:
    with pytest.raises(ImageError, match=reason):
        change(content, width=10)


@pytest.mark.parametrize(
    "parameters",
    [
        {"width": 400, "height": 400, "fit": "outside"},
        {"height": 400},
        {"transforms": [["extract", {"left": 70, "top": 0, "width": 11, "height": 5}]]},
    ],
)
def test_what_comes_out_is_bounded(change: Change, parameters: dict[str, Any]) -> None:
    with pytest.raises(ImageError):
        change(PNG, **parameters)


def test_one_transform_gives_the_same_bytes_again(tmp_path: Path) -> None:
    source = tmp_path / "in"
    source.write_bytes(PNG)
    contents = []
    for name in ("a", "b"):
        assert (
            render(RenderJob(source, tmp_path / name, Transform((), "webp", 80), LIMITS)) == "webp"
        )
        contents.append((tmp_path / name).read_bytes())
    assert contents[0] == contents[1]
