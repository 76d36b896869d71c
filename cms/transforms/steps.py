"""The steps of a transform as values, and the JSON array that names them (decisions, section 7)."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from cms.errors import Problem, Refused

MAX_STEPS = 5
MAX_SIGMA = 100.0
MAX_SIDE = 10**9

FITS = ("cover", "contain", "inside", "outside")

Focus = tuple[float, float]


@dataclass(frozen=True, slots=True)
class Resize:
    """To a size; with one side alone the other keeps its proportion, and `fit` is cover.

    Only a cover of two sides has a `focus`; None is the middle.
    """

    width: int | None
    height: int | None
    fit: str = "cover"
    enlarge: bool = True
    focus: Focus | None = None


@dataclass(frozen=True, slots=True)
class Extract:
    left: int
    top: int
    width: int
    height: int


@dataclass(frozen=True, slots=True)
class Rotate:
    """Clockwise, by degrees."""

    angle: float


@dataclass(frozen=True, slots=True)
class Flip:
    """Upside down."""


@dataclass(frozen=True, slots=True)
class Flop:
    """Left to right."""


@dataclass(frozen=True, slots=True)
class Greyscale:
    pass


@dataclass(frozen=True, slots=True)
class Blur:
    sigma: float


@dataclass(frozen=True, slots=True)
class Sharpen:
    sigma: float


@dataclass(frozen=True, slots=True)
class Trim:
    """Cut edges that look like the upper left pixel, within so many of 255 shades."""

    threshold: float


@dataclass(frozen=True, slots=True)
class Negate:
    """Colours only: what is transparent stays so."""


@dataclass(frozen=True, slots=True)
class Tint:
    """The brightness of the image in the hue of a colour."""

    red: int
    green: int
    blue: int


ImageStep = (
    Resize | Extract | Rotate | Flip | Flop | Greyscale | Blur | Sharpen | Trim | Negate | Tint
)


def illegal_transform(reason: str, **place: object) -> Refused:
    """Return the refusal of a transform, with its reason and place."""
    message = f"Illegal asset transformation. {reason}."
    return Refused(Problem("ILLEGAL_ASSET_TRANSFORMATION", message, {"reason": reason, **place}))


def parse_steps(said: object, *, maximum: int = MAX_SIDE) -> tuple[ImageStep, ...]:
    """Return the steps of `transforms`: an array, or its JSON, of arrays that hold a name and its arguments.

    A resize makes sides of `maximum` pixels at most. Raises `Refused` ILLEGAL_ASSET_TRANSFORMATION.
    """
    listed = _json(said) if isinstance(said, str) else said
    if not isinstance(listed, list):
        raise illegal_transform("transforms is a JSON array of operations", parameter="transforms")
    if len(listed) > MAX_STEPS:
        raise illegal_transform(
            f"transforms holds at most {MAX_STEPS} operations", parameter="transforms"
        )
    return tuple(
        _within_side(_step(entry, place), place, maximum) for place, entry in _with_paths(listed)
    )


def require_integer(said: object, name: str, *, minimum: int, maximum: int) -> int:
    """Return a whole number, of JSON or of a query string."""
    if isinstance(said, str) and re.fullmatch(r"[0-9]{1,9}", said):
        said = int(said)
    if not isinstance(said, int) or isinstance(said, bool) or not minimum <= said <= maximum:
        raise illegal_transform(
            f"{name} is a whole number from {minimum} to {maximum}", parameter=name
        )
    return said


def require_number(said: object, name: str, *, minimum: float, maximum: float) -> float:
    """Return a number, of JSON or of a query string."""
    if isinstance(said, str) and re.fullmatch(r"-?[0-9]{1,9}(\.[0-9]{1,9})?", said):
        said = float(said)
    if (
        not isinstance(said, int | float)
        or isinstance(said, bool)
        or not minimum <= said <= maximum
    ):
        raise illegal_transform(
            f"{name} is a number from {minimum:g} to {maximum:g}", parameter=name
        )
    return float(said)


def require_choice(said: object, name: str, among: Sequence[str]) -> str:
    """Return one of a few words."""
    if not isinstance(said, str) or said not in among:
        raise illegal_transform(f"{name} is one of {', '.join(among)}", parameter=name)
    return said


def require_boolean(said: object, name: str) -> bool:
    """Return a boolean, of JSON or of a query string; the bare name there is true."""
    if said in (True, "true", "1", ""):
        return True
    if said in (False, "false", "0"):
        return False
    raise illegal_transform(f"{name} is true or false", parameter=name)


def _json(said: str) -> object:
    try:
        return json.loads(said)
    except (ValueError, RecursionError):
        raise illegal_transform("transforms is not JSON", parameter="transforms") from None


def _with_paths(listed: Sequence[object]) -> Iterator[tuple[str, object]]:
    return ((f"transforms[{index}]", entry) for index, entry in enumerate(listed))


def _within_side(step: ImageStep, place: str, maximum: int) -> ImageStep:
    for name in ("width", "height") if isinstance(step, Resize) else ():
        require_integer(getattr(step, name) or 1, f"{place}.{name}", minimum=1, maximum=maximum)
    return step


def _step(entry: object, place: str) -> ImageStep:
    if not isinstance(entry, list) or not entry:
        raise illegal_transform(
            f"{place} is an array of a name and its arguments", parameter="transforms"
        )
    parse = STEP_PARSERS[require_choice(entry[0], place, tuple(STEP_PARSERS))]
    return parse(entry[1:], place)


Arguments = Sequence[object]


def _without_argument(step: ImageStep) -> Callable[[Arguments, str], ImageStep]:
    def parse(arguments: Arguments, place: str) -> ImageStep:
        if arguments:
            raise illegal_transform(f"{place} takes no argument", parameter="transforms")
        return step

    return parse


def _one_number(
    make: Callable[[float], ImageStep], *, default: float, minimum: float, maximum: float
) -> Callable[[Arguments, str], ImageStep]:
    def parse(arguments: Arguments, place: str) -> ImageStep:
        if len(arguments) > 1:
            raise illegal_transform(f"{place} takes one argument", parameter="transforms")
        return make(
            require_number(
                arguments[0] if arguments else default, place, minimum=minimum, maximum=maximum
            )
        )

    return parse


def _options(arguments: Arguments, place: str, known: Sequence[str]) -> Mapping[str, object]:
    """Return the one argument that is an object, of which no other key is known."""
    options = arguments[0] if len(arguments) == 1 else None
    if not isinstance(options, dict) or not options.keys() <= set(known):
        raise illegal_transform(
            f"{place} takes an object of {', '.join(known)}", parameter="transforms"
        )
    return {key: value for key, value in options.items() if value is not None}


def _resize(arguments: Arguments, place: str) -> ImageStep:
    return resize_of(
        _options(arguments, place, ("width", "height", "fit", "withoutEnlargement")), f"{place}."
    )


def resize_of(said: Mapping[str, object], place: str = "", *, maximum: int = MAX_SIDE) -> Resize:
    """Return the resize of width, height, fit and withoutEnlargement, of which one side must be there."""
    width, height = (
        require_integer(said[key], place + key, minimum=1, maximum=maximum) if key in said else None
        for key in ("width", "height")
    )
    fit = require_choice(said.get("fit", FITS[0]), f"{place}fit", FITS)
    enlarge = not require_boolean(
        said.get("withoutEnlargement", False), f"{place}withoutEnlargement"
    )
    if width is None and height is None:
        raise illegal_transform(
            f"{place}width or {place}height is needed", parameter=place or "width"
        )
    # With one side alone there is nothing to fit.
    return Resize(width, height, fit if width and height else FITS[0], enlarge)


def _extract(arguments: Arguments, place: str) -> ImageStep:
    names = ("left", "top", "width", "height")
    said = _options(arguments, place, names)
    minimum = {"left": 0, "top": 0, "width": 1, "height": 1}
    return Extract(
        *(
            require_integer(
                said.get(name), f"{place}.{name}", minimum=minimum[name], maximum=MAX_SIDE
            )
            for name in names
        )
    )


def _rotate(arguments: Arguments, place: str) -> ImageStep:
    turn = _one_number(Rotate, default=0, minimum=-3600, maximum=3600)(arguments, place)
    assert isinstance(turn, Rotate)
    return Rotate(turn.angle % 360)


def _tint(arguments: Arguments, place: str) -> ImageStep:
    colour = "".join(str(arguments[0]).lower().split()) if len(arguments) == 1 else ""
    if found := re.fullmatch(r"#?([0-9a-f]{6}|[0-9a-f]{3})", colour):
        digits = found[1] if len(found[1]) == 6 else "".join(digit * 2 for digit in found[1])
        return Tint(*bytes.fromhex(digits))
    if found := re.fullmatch(r"rgb\(([0-9]{1,3}),([0-9]{1,3}),([0-9]{1,3})\)", colour):
        return Tint(
            *(require_integer(shade, place, minimum=0, maximum=255) for shade in found.groups())
        )
    raise illegal_transform(
        f"{place} takes a colour such as #ff8800 or rgb(255, 136, 0)", parameter="transforms"
    )


STEP_PARSERS: Mapping[str, Callable[[Arguments, str], ImageStep]] = MappingProxyType(
    {
        "resize": _resize,
        "extract": _extract,
        "rotate": _rotate,
        "flip": _without_argument(Flip()),
        "flop": _without_argument(Flop()),
        "greyscale": _without_argument(Greyscale()),
        "blur": _one_number(Blur, default=1, minimum=0.3, maximum=MAX_SIGMA),
        "sharpen": _one_number(Sharpen, default=1, minimum=0.3, maximum=MAX_SIGMA),
        "trim": _one_number(Trim, default=10, minimum=0, maximum=255),
        "negate": _without_argument(Negate()),
        "tint": _tint,
    }
)
