"""What parameters become: one transform, one key, or a refusal that names the parameter."""

from __future__ import annotations

import json
from typing import Any

import pytest

from cms.errors import Refused
from cms.transforms.steps import (
    Blur,
    Extract,
    Flip,
    Flop,
    Greyscale,
    ImageStep,
    Negate,
    Resize,
    Rotate,
    Sharpen,
    Tint,
    Trim,
)
from cms.transforms.transform import (
    BUILT_IN_PRESETS,
    FALLBACK_FORMAT,
    NO_TRANSFORM,
    ResolvedTransform,
    Transform,
    TransformRules,
    parse_transform,
    resolve_transform,
    transform_rules,
)

ANY = TransformRules()


def parsed(rules: TransformRules = ANY, /, **parameters: object) -> Transform:
    return parse_transform(parameters, rules)


def refused(rules: TransformRules = ANY, /, **parameters: object) -> dict[str, Any]:
    with pytest.raises(Refused) as refusal:
        parse_transform(parameters, rules)
    problem = refusal.value.problems[0]
    assert problem.code == "ILLEGAL_ASSET_TRANSFORMATION"
    return dict(problem.extensions)


def best(
    transform: Transform, media_type: str = "image/jpeg", accept: str = "", **focus: Any
) -> Transform:
    return resolved(transform, media_type, accept, **focus).transform


def resolved(
    transform: Transform, media_type: str = "image/jpeg", accept: str = "", **focus: Any
) -> ResolvedTransform:
    return resolve_transform(transform, media_type, focus=focus.get("focus"), accept=accept)


def test_all_parameters_make_a_resize_and_a_format() -> None:
    transform = parsed(
        width="300",
        height="200",
        fit="cover",
        quality="70",
        format="webp",
        withoutEnlargement="true",
        focal_point_x="0.25",
        focal_point_y="1",
    )
    assert transform == Transform((Resize(300, 200, "cover", False, (0.25, 1.0)),), "webp", 70)


def test_no_parameter_and_other_parameters_change_nothing() -> None:
    assert parsed() == parsed(download="", access_token="x") == NO_TRANSFORM


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("width", "0"),
        ("width", "-1"),
        ("width", "6001"),
        ("width", "12.5"),
        ("width", "1e2"),
        ("width", ""),
        ("width", "٣"),
        ("width", ["10", "20"]),
        ("height", "wide"),
        ("fit", "fill"),
        ("fit", ""),
        ("quality", "101"),
        ("quality", "-1"),
        ("format", "jpeg"),
        ("format", "gif"),
        ("withoutEnlargement", "maybe"),
        ("focal_point_x", "1.01"),
        ("focal_point_y", "nan"),
        ("transforms", "[[]"),
        ("transforms", "{}"),
        ("transforms", "[" * 100_000),
        ("key", "no-such-preset"),
    ],
)
def test_a_wrong_value_is_refused_by_its_parameters_name(name: str, value: object) -> None:
    refusal = refused(ANY, **{name: value})
    assert refusal["parameter"] == name
    assert refusal["reason"]


@pytest.mark.parametrize(
    ("operation", "step"),
    [
        (["resize", {"width": 10, "height": 20, "fit": "inside"}], Resize(10, 20, "inside")),
        (["resize", {"width": 10, "withoutEnlargement": True}], Resize(10, None, "cover", False)),
        (["extract", {"left": 0, "top": 1, "width": 2, "height": 3}], Extract(0, 1, 2, 3)),
        (["rotate", -90], Rotate(270.0)),
        (["flip"], Flip()),
        (["flop"], Flop()),
        (["greyscale"], Greyscale()),
        (["blur", 4.5], Blur(4.5)),
        (["blur"], Blur(1.0)),
        (["sharpen", 2], Sharpen(2.0)),
        (["trim", 20], Trim(20.0)),
        (["negate"], Negate()),
        (["tint", "#F80"], Tint(255, 136, 0)),
        (["tint", "rgb(255, 136, 0)"], Tint(255, 136, 0)),
    ],
)
def test_a_named_operation_becomes_a_step(operation: list[object], step: ImageStep) -> None:
    assert parsed(transforms=json.dumps([operation])).steps == (step,)


@pytest.mark.parametrize(
    "operation",
    [
        "flip",
        [],
        ["spin"],
        [["flip"]],
        ["flip", 1],
        ["resize"],
        ["resize", {}],
        ["resize", {"width": 10, "colour": "red"}],
        ["resize", {"width": 10}, 20],
        ["extract", {"left": 0, "top": 0, "width": 5}],
        ["extract", {"left": -1, "top": 0, "width": 5, "height": 5}],
        ["rotate", "left"],
        ["blur", 0.1],
        ["blur", 1000],
        ["blur", 1, 2],
        ["sharpen", True],
        ["trim", 256],
        ["tint"],
        ["tint", "blue-ish"],
        ["tint", "rgb(256, 0, 0)"],
        ["tint", 5],
    ],
)
def test_a_wrong_operation_is_refused_with_its_place(operation: object) -> None:
    refusal = refused(transforms=json.dumps([["flop"], operation]))
    assert "transforms[1]" in refusal["reason"]


def test_operations_are_five_at_most_and_bounded_like_parameters() -> None:
    assert len(parsed(transforms=json.dumps([["flip"]] * 5)).steps) == 5
    assert refused(transforms=json.dumps([["flip"]] * 6))["parameter"] == "transforms"
    refusal = refused(transforms='[["flip"], ["resize", {"width": 1, "height": 6001}]]')
    assert (refusal["parameter"], refusal["reason"][-4:]) == ("transforms[1].height", "6000")


def test_the_side_that_is_too_long_is_the_one_that_is_reported() -> None:
    assert refused(width="10", height="6001")["parameter"] == "height"
    assert refused(width="x")["reason"] == "width is a whole number from 1 to 6000"


def test_operations_come_before_the_resize_of_the_parameters() -> None:
    assert parsed(transforms='[["flip"]]', width="9").steps == (Flip(), Resize(9, None))


PRESETS = transform_rules(
    "presets",
    [{"key": "tiny", "width": 5, "format": "webp", "height": None}, {"width": 1}],
    maximum=6000,
)


def test_a_preset_is_asked_for_by_its_key() -> None:
    assert parsed(PRESETS, key="tiny") == Transform((Resize(5, None),), "webp")


@pytest.mark.parametrize("key", BUILT_IN_PRESETS)
@pytest.mark.parametrize("allowed", ["all", "presets", "none"])
def test_a_built_in_preset_is_always_there(key: str, allowed: str) -> None:
    assert parsed(TransformRules(allowed), key=key).steps


def test_a_key_stands_alone() -> None:
    assert refused(PRESETS, key="tiny", width="5")["parameter"] == "key"
    assert refused(key="system-small-cover", quality="5")["parameter"] == "key"


def test_the_settings_decide_what_is_allowed() -> None:
    nothing = transform_rules("none", [{"key": "tiny", "width": 5}], maximum=6000)
    assert refused(PRESETS, width="5")["parameter"] == "width"
    assert refused(nothing, key="tiny")["parameter"] == "key"
    assert refused(nothing, quality="5")["parameter"] == "quality"


def test_a_preset_that_is_wrong_is_refused_when_it_is_asked_for() -> None:
    assert (
        refused(transform_rules("all", [{"key": "big", "width": 9000}], maximum=6000), key="big")[
            "parameter"
        ]
        == "width"
    )


def test_the_same_result_has_the_same_key() -> None:
    same: list[dict[str, object]] = [
        {"width": "300", "height": "200"},
        {"width": 300, "height": 200, "fit": "cover"},
        {"width": "300", "height": "200", "quality": "80", "format": "jpg"},
        {"width": "300", "height": "200", "focal_point_x": "0.5", "focal_point_y": "0.5"},
        {
            "transforms": [["rotate", 0], ["resize", {"width": 300, "height": 200}]],
            "withoutEnlargement": "false",
        },
    ]
    assert len({resolved(parse_transform(parameters, ANY)).key for parameters in same}) == 1
    assert resolved(parsed(width="300")).key != resolved(parsed(height="300")).key
    assert best(parsed(width="5", fit="inside")) == best(parsed(width="5", focal_point_x="0"))


@pytest.mark.parametrize(
    "parameters",
    [
        {"format": "jpg"},
        {"fit": "inside"},
        {"focal_point_x": "0"},
        {"withoutEnlargement": "true"},
        {"format": "auto"},
    ],
)
def test_what_changes_nothing_leaves_the_original(parameters: dict[str, str]) -> None:
    assert best(parse_transform(parameters, ANY)) == NO_TRANSFORM


def test_the_files_focal_point_is_the_usual_one_of_a_crop() -> None:
    crop = parsed(width="5", height="5")
    one_side = parsed(width="5")
    assert best(crop, focus=(0.1, 0.9)).steps == (Resize(5, 5, focus=(0.1, 0.9)),)
    assert best(one_side, focus=(0.1, 0.9)).steps == (Resize(5, None),)
    own = parsed(width="5", height="5", focal_point_x="0.5")
    assert best(own, focus=(0.1, 0.9)).steps == (Resize(5, 5),)


@pytest.mark.parametrize(
    ("accept", "media_type", "form"),
    [
        ("image/avif,image/webp,*/*", "image/jpeg", "avif"),
        ("image/webp;q=0.8, image/*", "image/png", "webp"),
        ("image/avif;q=0, IMAGE/WEBP", "image/png", "webp"),
        ("image/*,*/*", "image/webp", FALLBACK_FORMAT),
        ("", "image/png", FALLBACK_FORMAT),
    ],
)
def test_auto_is_the_smallest_format_that_the_client_names(
    accept: str, media_type: str, form: str
) -> None:
    assert best(parsed(format="auto"), media_type, accept).format == form


def test_a_format_without_quality_has_none() -> None:
    assert best(parsed(format="png", quality="5")).quality is None
    assert best(parsed(quality="5"), "image/png") == NO_TRANSFORM
