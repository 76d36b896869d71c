"""What a request or a preset asks of an image, as one value with one key (specification, section 4.8)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from types import MappingProxyType

from cms.transforms.steps import (
    MOST_PIXELS,
    Focus,
    Resize,
    Rotate,
    Step,
    choice,
    illegal,
    number,
    parse_steps,
    resize_of,
    whole,
)

FORMATS = ("jpg", "png", "webp", "tiff", "avif", "auto")

TRANSFORMED: Mapping[str, str] = MappingProxyType(
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

MEDIA_TYPES: Mapping[str, str] = MappingProxyType({form: media for media, form in TRANSFORMED.items()})

PLAIN = "plain"
"""The format for clients that know nothing newer: JPEG, or PNG where something is transparent."""

QUALITY: Mapping[str, int] = MappingProxyType({"jpg": 80, "webp": 80, "avif": 55, PLAIN: 80})
"""The usual quality of the formats that have one."""

OF_PRESETS = (
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

PARAMETERS = ("key", *OF_PRESETS)

MIDDLE = (0.5, 0.5)

BUILT_IN: Mapping[str, Mapping[str, object]] = MappingProxyType(
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
class Rules:
    """What the settings allow: `allowed` is all, presets or none; `most` bounds the sides of what is made."""

    allowed: str = "all"
    presets: Mapping[str, Mapping[str, object]] = field(default_factory=dict)
    most: int = 6000


@dataclass(frozen=True, slots=True)
class Transform:
    """Steps in their order, then a format. Without a format the image keeps its own; `auto` is the client's best."""

    steps: tuple[Step, ...] = ()
    format: str | None = None
    quality: int | None = None


NOTHING = Transform()


@dataclass(frozen=True, slots=True)
class Wanted:
    """A transform with nothing left open for one image; NOTHING where the image stays as it is.

    `key` is one text for equal transforms, and only for them. `varies` tells that it hangs on what the client accepts.
    """

    transform: Transform = NOTHING
    key: str = ""
    varies: bool = False


@dataclass(frozen=True, slots=True)
class Limits:
    """The most pixels of an image that is read, the longest side of one that is made, and the time it may take."""

    pixels: int
    side: int
    seconds: float


def rules_of(allowed: str, presets: object, *, most: int) -> Rules:
    """Return the rules of the settings `storage_asset_transform` and `storage_asset_presets`."""
    listed = presets if isinstance(presets, list) else []
    named = {str(preset["key"]): preset for preset in listed if isinstance(preset, dict) and preset.get("key")}
    return Rules(allowed, MappingProxyType(named), most)


def parse_transform(said: Mapping[str, object], rules: Rules) -> Transform:
    """Return the transform that parameters ask for; raises `Refused` ILLEGAL_ASSET_TRANSFORMATION."""
    asked = {name: said[name] for name in PARAMETERS if name in said}
    if not asked:
        return NOTHING
    if "key" not in asked:
        if rules.allowed != "all":
            raise illegal("Only presets are allowed, by their key", parameter=next(iter(asked)))
        return _parsed(asked, rules.most)
    if len(asked) > 1:
        raise illegal("key stands alone: the preset says the rest", parameter="key")
    return parse_preset(_preset(asked["key"], rules), most=rules.most)


def parse_preset(preset: Mapping[str, object], *, most: int = MOST_PIXELS) -> Transform:
    """Return the transform of a preset, of which null says nothing; raises as `parse_transform`."""
    return _parsed({name: said for name, said in preset.items() if name in OF_PRESETS and said is not None}, most)


def _preset(key: object, rules: Rules) -> Mapping[str, object]:
    known = BUILT_IN if rules.allowed == "none" else {**BUILT_IN, **rules.presets}
    found = known.get(key) if isinstance(key, str) else None
    if found is None:
        raise illegal("There is no such preset", parameter="key")
    return found


def _parsed(said: Mapping[str, object], most: int) -> Transform:
    steps = _useful([*parse_steps(said.get("transforms", []), most=most), *_resized(said, most)])
    quality = whole(said["quality"], "quality", least=0, most=100) if "quality" in said else None
    form = choice(said["format"], "format", FORMATS) if "format" in said else None
    return Transform(steps, form, quality)


def _resized(said: Mapping[str, object], most: int) -> list[Step]:
    """Return the resize of the parameters; without a size the others are only checked."""
    sized = "width" in said or "height" in said
    resize = resize_of(said if sized else {**said, "width": 1}, most=most)
    x, y = (
        number(said[name], name, least=0, most=1) if name in said else None
        for name in ("focal_point_x", "focal_point_y")
    )
    return [replace(resize, focus=_focus(resize, x, y))] if sized else []


def _focus(resize: Resize, x: float | None, y: float | None) -> Focus | None:
    if (x is None and y is None) or not _crops(resize):
        return None
    return (MIDDLE[0] if x is None else x), (MIDDLE[1] if y is None else y)


def _crops(resize: Resize) -> bool:
    return resize.fit == "cover" and resize.width is not None and resize.height is not None


def _useful(steps: Iterable[Step]) -> tuple[Step, ...]:
    return tuple(step for step in steps if not isinstance(step, Rotate) or step.angle)


def settled(transform: Transform, media_type: str, *, focus: Focus | None, accept: str) -> Wanted:
    """Return what a transform makes of an image: its format, its quality, the file's own focal point.

    `accept` is the request's header.
    """
    own, varies = TRANSFORMED[media_type], transform.format == "auto"
    form = _best(accept, own) if varies else transform.format or own
    steps = tuple(_focused(step, focus) for step in transform.steps)
    quality = transform.quality if form in QUALITY else None
    if not steps and quality is None and form == own:
        return Wanted(varies=varies)
    made = Transform(steps, form, QUALITY.get(form) if quality is None else quality)
    return Wanted(made, blake2b(repr(made).encode(), digest_size=16).hexdigest(), varies)


def _focused(step: Step, focus: Focus | None) -> Step:
    if not isinstance(step, Resize) or not _crops(step):
        return step
    found = step.focus or focus
    return replace(step, focus=None if found == MIDDLE else found)


def _best(accept: str, own: str) -> str:
    """Return the smallest format that a client names: who only says that it takes all images may not know it."""
    for form in ("avif", "webp"):
        if _accepts(accept, MEDIA_TYPES[form]):
            return form
    return own if own == "jpg" else PLAIN


def _accepts(accept: str, media_type: str) -> bool:
    for entry in accept.lower().split(","):
        name, *parameters = (part.strip() for part in entry.split(";"))
        if name == media_type:
            return not any(part.replace(" ", "").rstrip("0.") == "q=" for part in parameters)
    return False
