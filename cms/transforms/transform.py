"""What a request or a preset asks of an image, as one value with one key (specification, section 4.8)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from types import MappingProxyType

from cms.transforms.steps import (
    MAX_SIDE,
    Focus,
    ImageStep,
    Resize,
    Rotate,
    illegal_transform,
    parse_steps,
    require_choice,
    require_integer,
    require_number,
    resize_of,
)

FORMATS = ("jpg", "png", "webp", "tiff", "avif", "auto")

FORMAT_BY_MEDIA_TYPE: Mapping[str, str] = MappingProxyType(
    {
        "image/jpeg": "jpg",
        "image/png": "png",
        "image/webp": "webp",
        "image/tiff": "tiff",
        "image/avif": "avif",
        "image/gif": "gif",
    }
)
"""Which media types are transformed, with the format that each keeps; others come untouched."""

MEDIA_TYPE_BY_FORMAT: Mapping[str, str] = MappingProxyType(
    {form: media for media, form in FORMAT_BY_MEDIA_TYPE.items()}
)

FALLBACK_FORMAT = "plain"
"""The format for clients that know nothing newer: JPEG, or PNG where something is transparent."""

DEFAULT_QUALITY: Mapping[str, int] = MappingProxyType(
    {"jpg": 80, "webp": 80, "avif": 55, FALLBACK_FORMAT: 80}
)
"""The usual quality of the formats that have one."""

PRESET_PARAMETERS = (
    "width",
    "height",
    "fit",
    "quality",
    "format",
    "withoutEnlargement",
    "focal_point_x",
    "focal_point_y",
    "transforms",
)
"""What a preset may say beside its key."""

PARAMETERS = ("key", *PRESET_PARAMETERS)

CENTER = (0.5, 0.5)

BUILT_IN_PRESETS: Mapping[str, Mapping[str, object]] = MappingProxyType(
    {
        "system-small-cover": {"width": 64, "height": 64, "fit": "cover"},
        "system-small-contain": {"width": 64, "fit": "contain"},
        "system-medium-cover": {"width": 300, "height": 300, "fit": "cover"},
        "system-medium-contain": {"width": 300, "fit": "contain"},
        "system-large-cover": {"width": 800, "height": 800, "fit": "cover"},
        "system-large-contain": {"width": 800, "fit": "contain"},
    }
)


@dataclass(frozen=True, slots=True)
class TransformRules:
    """What the settings allow: `allowed` is all, presets or none; `maximum` bounds the sides of what is made."""

    allowed: str = "all"
    presets: Mapping[str, Mapping[str, object]] = field(default_factory=dict)
    maximum: int = 6000


@dataclass(frozen=True, slots=True)
class Transform:
    """Steps in their order, then a format. Without a format the image keeps its own; `auto` is the client's best."""

    steps: tuple[ImageStep, ...] = ()
    format: str | None = None
    quality: int | None = None


NO_TRANSFORM = Transform()


@dataclass(frozen=True, slots=True)
class ResolvedTransform:
    """A transform with nothing left open for one image; NOTHING where the image stays as it is.

    `key` is one text for equal transforms, and only for them. `varies_by_client` tells that it hangs on what the
    client accepts.
    """

    transform: Transform = NO_TRANSFORM
    key: str = ""
    varies_by_client: bool = False


@dataclass(frozen=True, slots=True)
class ImageLimits:
    """The most pixels of an image that is read, the longest side of one that is made, and the time it may take."""

    max_pixels: int
    max_side: int
    max_seconds: float


def transform_rules(allowed: str, presets: object, *, maximum: int) -> TransformRules:
    """Return the rules of the settings `storage_asset_transform` and `storage_asset_presets`."""
    listed = presets if isinstance(presets, list) else []
    named = {
        str(preset["key"]): preset
        for preset in listed
        if isinstance(preset, dict) and preset.get("key")
    }
    return TransformRules(allowed, MappingProxyType(named), maximum)


def parse_transform(said: Mapping[str, object], rules: TransformRules) -> Transform:
    """Return the transform that parameters ask for; raises `Refused` ILLEGAL_ASSET_TRANSFORMATION."""
    asked = {name: said[name] for name in PARAMETERS if name in said}
    if not asked:
        return NO_TRANSFORM
    if "key" not in asked:
        if rules.allowed != "all":
            raise illegal_transform(
                "Only presets are allowed, by their key", parameter=next(iter(asked))
            )
        return _parse_parameters(asked, rules.maximum)
    if len(asked) > 1:
        raise illegal_transform("key stands alone: the preset says the rest", parameter="key")
    return parse_preset(_preset(asked["key"], rules), maximum=rules.maximum)


def parse_preset(preset: Mapping[str, object], *, maximum: int = MAX_SIDE) -> Transform:
    """Return the transform of a preset, of which null says nothing; raises as `parse_transform`."""
    return _parse_parameters(
        {
            name: said
            for name, said in preset.items()
            if name in PRESET_PARAMETERS and said is not None
        },
        maximum,
    )


def _preset(key: object, rules: TransformRules) -> Mapping[str, object]:
    known = BUILT_IN_PRESETS if rules.allowed == "none" else {**BUILT_IN_PRESETS, **rules.presets}
    found = known.get(key) if isinstance(key, str) else None
    if found is None:
        raise illegal_transform("There is no such preset", parameter="key")
    return found


def _parse_parameters(said: Mapping[str, object], maximum: int) -> Transform:
    steps = _without_idle(
        [*parse_steps(said.get("transforms", []), maximum=maximum), *_resize_steps(said, maximum)]
    )
    quality = (
        require_integer(said["quality"], "quality", minimum=0, maximum=100)
        if "quality" in said
        else None
    )
    form = require_choice(said["format"], "format", FORMATS) if "format" in said else None
    return Transform(steps, form, quality)


def _resize_steps(said: Mapping[str, object], maximum: int) -> list[ImageStep]:
    """Return the resize of the parameters; without a size the others are only checked."""
    sized = "width" in said or "height" in said
    resize = resize_of(said if sized else {**said, "width": 1}, maximum=maximum)
    x, y = (
        require_number(said[name], name, minimum=0, maximum=1) if name in said else None
        for name in ("focal_point_x", "focal_point_y")
    )
    return [replace(resize, focus=_focus(resize, x, y))] if sized else []


def _focus(resize: Resize, x: float | None, y: float | None) -> Focus | None:
    if (x is None and y is None) or not _crops_to_focus(resize):
        return None
    return (CENTER[0] if x is None else x), (CENTER[1] if y is None else y)


def _crops_to_focus(resize: Resize) -> bool:
    return resize.fit == "cover" and resize.width is not None and resize.height is not None


def _without_idle(steps: Iterable[ImageStep]) -> tuple[ImageStep, ...]:
    return tuple(step for step in steps if not isinstance(step, Rotate) or step.angle)


def resolve_transform(
    transform: Transform, media_type: str, *, focus: Focus | None, accept: str
) -> ResolvedTransform:
    """Return what a transform makes of an image: its format, its quality, the file's own focal point.

    `accept` is the request's header.
    """
    own, varies_by_client = FORMAT_BY_MEDIA_TYPE[media_type], transform.format == "auto"
    form = _best_format(accept, own) if varies_by_client else transform.format or own
    steps = tuple(_with_focus(step, focus) for step in transform.steps)
    quality = transform.quality if form in DEFAULT_QUALITY else None
    if not steps and quality is None and form == own:
        return ResolvedTransform(varies_by_client=varies_by_client)
    made = Transform(steps, form, DEFAULT_QUALITY.get(form) if quality is None else quality)
    return ResolvedTransform(
        made, blake2b(repr(made).encode(), digest_size=16).hexdigest(), varies_by_client
    )


def _with_focus(step: ImageStep, focus: Focus | None) -> ImageStep:
    if not isinstance(step, Resize) or not _crops_to_focus(step):
        return step
    found = step.focus or focus
    return replace(step, focus=None if found == CENTER else found)


def _best_format(accept: str, own: str) -> str:
    """Return the smallest format that a client names: who only says that it takes all images may not know it."""
    for form in ("avif", "webp"):
        if _accepts(accept, MEDIA_TYPE_BY_FORMAT[form]):
            return form
    return own if own == "jpg" else FALLBACK_FORMAT


def _accepts(accept: str, media_type: str) -> bool:
    for entry in accept.lower().split(","):
        name, *parameters = (part.strip() for part in entry.split(";"))
        if name == media_type:
            return not any(part.replace(" ", "").rstrip("0.") == "q=" for part in parameters)
    return False
