"""Transforms of images, by requests and by presets, as values with a key (docs/assets.md)."""

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
"""The media types that are transformed, with their formats; other files are sent as they are."""

MEDIA_TYPE_BY_FORMAT: Mapping[str, str] = MappingProxyType(
    {format: media_type for media_type, format in FORMAT_BY_MEDIA_TYPE.items()}
)

FALLBACK_FORMAT = "plain"
"""The format for clients that know no newer one: JPEG, or PNG where something is transparent."""

DEFAULT_QUALITY: Mapping[str, int] = MappingProxyType(
    {"jpg": 80, "webp": 80, "avif": 55, FALLBACK_FORMAT: 80}
)
"""The default quality of the formats that have one."""

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
"""The parameters that a preset may have beside its key."""

PARAMETERS = ("key", *PRESET_PARAMETERS)

CENTER = (0.5, 0.5)

# Those of Directus, which its app asks for by name.
BUILT_IN_PRESETS: Mapping[str, Mapping[str, object]] = MappingProxyType(
    {
        # Squares of cover, and images of one side whose other side follows.
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
    """The transforms that the settings allow; `allowed` is all, presets or none.

    `maximum` bounds the sides of transformed images.
    """

    allowed: str = "all"
    presets: Mapping[str, Mapping[str, object]] = field(default_factory=dict)
    maximum: int = 6000


@dataclass(frozen=True, slots=True)
class Transform:
    """Steps in their order, then a format.

    Without a format the image keeps its own; `auto` is the best that the client accepts.
    """

    steps: tuple[ImageStep, ...] = ()
    format: str | None = None
    quality: int | None = None


NO_TRANSFORM = Transform()


@dataclass(frozen=True, slots=True)
class ResolvedTransform:
    """A transform with nothing left open for one image; NO_TRANSFORM leaves the image as it is.

    `key` is the same text for equal transforms, and only for them. `varies_by_client` is true where
    the transform depends on what the client accepts.
    """

    transform: Transform = NO_TRANSFORM
    key: str = ""
    varies_by_client: bool = False


@dataclass(frozen=True, slots=True)
class ImageLimits:
    """Limits of transforming: pixels of the image that is read, sides of the result, and time."""

    max_pixels: int
    max_side: int
    max_seconds: float


def transform_rules(allowed: str, presets: object, *, maximum: int) -> TransformRules:
    """Return the rules of the settings `storage_asset_transform` and `storage_asset_presets`."""
    # A column of JSON may hold anything: other programs write it too.
    entries = presets if isinstance(presets, list) else []
    presets_by_key = {
        str(preset["key"]): preset
        for preset in entries
        if isinstance(preset, dict) and preset.get("key")
    }
    return TransformRules(allowed, MappingProxyType(presets_by_key), maximum)


def parse_transform(params: Mapping[str, object], rules: TransformRules) -> Transform:
    """Return the transform of parameters; raises `Refused` ILLEGAL_ASSET_TRANSFORMATION."""
    # Other parameters are not about the image: `download`, or what a proxy has added.
    sent = {name: params[name] for name in PARAMETERS if name in params}
    if not sent:
        return NO_TRANSFORM
    if "key" not in sent:
        if rules.allowed != "all":
            raise illegal_transform(
                "Only presets are allowed, by their key", parameter=next(iter(sent))
            )
        return _parse_parameters(sent, rules.maximum)
    # With other parameters beside it a preset would allow every transform.
    if len(sent) > 1:
        raise illegal_transform("key stands alone: the preset says the rest", parameter="key")
    return parse_preset(_preset(sent["key"], rules), maximum=rules.maximum)


def parse_preset(preset: Mapping[str, object], *, maximum: int = MAX_SIDE) -> Transform:
    """Return the transform of a preset, whose nulls are left out; raises as `parse_transform`."""
    params = {name: preset[name] for name in PRESET_PARAMETERS if preset.get(name) is not None}
    return _parse_parameters(params, maximum)


def _preset(key: object, rules: TransformRules) -> Mapping[str, object]:
    # Presets of the settings replace built-in ones of the same key, unless none are allowed.
    presets = BUILT_IN_PRESETS
    if rules.allowed != "none":
        presets = {**BUILT_IN_PRESETS, **rules.presets}
    if not isinstance(key, str) or key not in presets:
        raise illegal_transform("There is no such preset", parameter="key")
    return presets[key]


def _parse_parameters(params: Mapping[str, object], maximum: int) -> Transform:
    # The size comes last, so that it is the size of the result.
    steps = [
        *parse_steps(params.get("transforms", []), maximum=maximum),
        *_resize_steps(params, maximum),
    ]
    quality = None
    if "quality" in params:
        quality = require_integer(params["quality"], "quality", minimum=0, maximum=100)
    format = None
    if "format" in params:
        format = require_choice(params["format"], "format", FORMATS)
    return Transform(_without_idle(steps), format, quality)


def _resize_steps(params: Mapping[str, object], maximum: int) -> list[ImageStep]:
    """Return the resize of the parameters; without a size the others are only checked."""
    has_size = "width" in params or "height" in params
    if not has_size:
        # A side is needed for the checks of `fit` and the rest; the resize is thrown away.
        params = {**params, "width": 1}
    resize = resize_of(params, maximum=maximum)
    x = _focal_coordinate(params, "focal_point_x")
    y = _focal_coordinate(params, "focal_point_y")
    if not has_size:
        return []
    return [replace(resize, focus=_focus(resize, x, y))]


def _focal_coordinate(params: Mapping[str, object], name: str) -> float | None:
    if name not in params:
        return None
    return require_number(params[name], name, minimum=0, maximum=1)


def _focus(resize: Resize, x: float | None, y: float | None) -> Focus | None:
    if (x is None and y is None) or not _crops_to_focus(resize):
        return None
    return CENTER[0] if x is None else x, CENTER[1] if y is None else y


def _crops_to_focus(resize: Resize) -> bool:
    # Every other fit shows the whole image.
    return resize.fit == "cover" and resize.width is not None and resize.height is not None


def _without_idle(steps: Iterable[ImageStep]) -> tuple[ImageStep, ...]:
    """Return the steps without rotations by 0 degrees, so that they give no key of their own."""
    return tuple(step for step in steps if step != Rotate(0))


def resolve_transform(
    transform: Transform, media_type: str, *, focus: Focus | None, accept: str
) -> ResolvedTransform:
    """Return a transform with the format, quality and focal point that it has for one image.

    `focus` is the focal point of the file, `accept` the header of the request.
    """
    own_format = FORMAT_BY_MEDIA_TYPE[media_type]
    varies_by_client = transform.format == "auto"
    if varies_by_client:
        format = _best_format(accept, own_format)
    else:
        format = transform.format or own_format
    steps = tuple(_with_focus(step, focus) for step in transform.steps)
    quality = transform.quality
    # Formats without a quality must not get different keys for different qualities.
    if format not in DEFAULT_QUALITY:
        quality = None
    if not steps and quality is None and format == own_format:
        # Nothing would change: the image is sent as it is.
        return ResolvedTransform(varies_by_client=varies_by_client)
    # Sent or not, the same quality gives the same key.
    if quality is None:
        quality = DEFAULT_QUALITY.get(format)
    resolved = Transform(steps, format, quality)
    # repr() of frozen dataclasses names every field and its value: equal transforms have equal
    # texts, and a changed class makes new keys.
    key = blake2b(repr(resolved).encode(), digest_size=16).hexdigest()
    return ResolvedTransform(resolved, key, varies_by_client)


def _with_focus(step: ImageStep, focus: Focus | None) -> ImageStep:
    if not isinstance(step, Resize) or not _crops_to_focus(step):
        return step
    chosen = step.focus or focus
    # With the center as its focus an image is the same as without any, and so must be the key.
    if chosen == CENTER:
        chosen = None
    return replace(step, focus=chosen)


def _best_format(accept: str, own_format: str) -> str:
    """Return the format with the smallest files that a client accepts by name.

    A client that accepts all images (`image/*`) may not know the newer formats.
    """
    # The format with the smaller files first.
    for format in ("avif", "webp"):
        if _accepts(accept, MEDIA_TYPE_BY_FORMAT[format]):
            return format
    # A JPEG has nothing transparent, so that it need not be decoded to find out.
    if own_format == "jpg":
        return own_format
    return FALLBACK_FORMAT


def _accepts(accept: str, media_type: str) -> bool:
    for entry in accept.lower().split(","):
        name, *parameters = entry.split(";")
        if name.strip() == media_type:
            return not any(map(_is_refusal, parameters))
    return False


def _is_refusal(parameter: str) -> bool:
    """Tell whether a parameter of a media type is a quality of zero, such as `q=0.00`."""
    return parameter.strip().replace(" ", "").rstrip("0.") == "q="
