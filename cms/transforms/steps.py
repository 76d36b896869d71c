"""The steps of a transform as values, parsed from the JSON of `transforms` (docs/assets.md)."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from cms.errors import Problem, Refused
from cms.text_shapes import WHOLE_NUMBER

MAX_STEPS = 5
MAX_SIGMA = 100.0
MAX_SIDE = 10**9
"""Pixels of a side where the settings set no limit."""

# The words of CSS object-fit, except that `outside` is a cover that is not cut.
FITS = ("cover", "contain", "inside", "outside")

Focus = tuple[float, float]
"""The point that a crop keeps, as shares of width and height from the upper left."""

# #ff8800, #f80, and both without the sign, which would have to be encoded in a URL.
_HEXADECIMAL_COLOUR = re.compile(r"#?([0-9a-f]{6}|[0-9a-f]{3})")
# rgb(255,136,0), from which blanks have been removed.
_DECIMAL_COLOUR = re.compile(r"rgb\(([0-9]{1,3}),([0-9]{1,3}),([0-9]{1,3})\)")


@dataclass(frozen=True, slots=True)
class Resize:
    """Scale to a size; with one side alone the other keeps its proportion, and `fit` is cover.

    Only a cover of two sides has a `focus`; None is the center.
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
    """Turn clockwise, by degrees."""

    angle: float


@dataclass(frozen=True, slots=True)
class Flip:
    """Mirror upside down."""


@dataclass(frozen=True, slots=True)
class Flop:
    """Mirror left to right."""


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
    """Cut off edges that differ from the upper left pixel by so many of 255 shades at most."""

    threshold: float


@dataclass(frozen=True, slots=True)
class Negate:
    """Invert the colours; what is transparent stays so."""


@dataclass(frozen=True, slots=True)
class Tint:
    """Keep the brightness of the image, in the hue of a colour."""

    red: int
    green: int
    blue: int


ImageStep = (
    Resize | Extract | Rotate | Flip | Flop | Greyscale | Blur | Sharpen | Trim | Negate | Tint
)


_STEPS_WITHOUT_ARGUMENT: Mapping[str, ImageStep] = {
    "flip": Flip(),
    "flop": Flop(),
    "greyscale": Greyscale(),
    "negate": Negate(),
}
STEP_NAMES = (
    *("resize", "extract", "rotate", "flip", "flop", "greyscale"),
    *("blur", "sharpen", "trim", "negate", "tint"),
)


def illegal_transform(reason: str, **extensions: object) -> Refused:
    """Return the refusal of a transform with its reason; `extensions` say where in the request."""
    message = f"Illegal asset transformation. {reason}."
    return Refused(
        Problem("ILLEGAL_ASSET_TRANSFORMATION", message, {"reason": reason, **extensions})
    )


def _illegal_steps(reason: str) -> Refused:
    return illegal_transform(reason, parameter="transforms")


def parse_steps(value: object, *, maximum: int = MAX_SIDE) -> tuple[ImageStep, ...]:
    """Return the steps of `transforms`: an array of arrays, each a name and its arguments.

    It may come as JSON text. A resize makes sides of `maximum` pixels at most. Raises `Refused`
    ILLEGAL_ASSET_TRANSFORMATION.
    """
    entries = _json(value) if isinstance(value, str) else value
    if not isinstance(entries, list):
        raise _illegal_steps("transforms is a JSON array of operations")
    # Each step takes time and memory, and anybody may ask for them.
    if len(entries) > MAX_STEPS:
        raise _illegal_steps(f"transforms holds at most {MAX_STEPS} operations")
    steps = []
    for index, entry in enumerate(entries):
        # Problems name the step by its position, as clients count them from 0.
        path = f"transforms[{index}]"
        step = _step(entry, path)
        _check_sides(step, path, maximum)
        steps.append(step)
    return tuple(steps)


def require_integer(value: object, name: str, *, minimum: int, maximum: int) -> int:
    """Return a whole number, of JSON or of a query string.

    Raises `Refused` ILLEGAL_ASSET_TRANSFORMATION, as all of these do.
    """
    if isinstance(value, str) and WHOLE_NUMBER.fullmatch(value):
        value = int(value)
    # To Python true and false are whole numbers.
    if not isinstance(value, int) or isinstance(value, bool) or not minimum <= value <= maximum:
        raise illegal_transform(
            f"{name} is a whole number from {minimum} to {maximum}", parameter=name
        )
    return value


def require_number(value: object, name: str, *, minimum: float, maximum: float) -> float:
    """Return a number, of JSON or of a query string."""
    if isinstance(value, str) and re.fullmatch(r"-?[0-9]{1,9}(\.[0-9]{1,9})?", value):
        value = float(value)
    if (
        not isinstance(value, int | float)
        or isinstance(value, bool)
        or not minimum <= value <= maximum
    ):
        raise illegal_transform(
            f"{name} is a number from {minimum:g} to {maximum:g}", parameter=name
        )
    return float(value)


def require_choice(value: object, name: str, choices: Sequence[str]) -> str:
    """Return one of a few words."""
    if not isinstance(value, str) or value not in choices:
        raise illegal_transform(f"{name} is one of {', '.join(choices)}", parameter=name)
    return value


def require_boolean(value: object, name: str) -> bool:
    """Return a boolean, of JSON or of a query string, where a name without a value is true."""
    # 1 == True in Python, so that the number 1 counts as well.
    if value in (True, "true", "1", ""):
        return True
    if value in (False, "false", "0"):
        return False
    raise illegal_transform(f"{name} is true or false", parameter=name)


def _json(text: str) -> object:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):  # the second for brackets in brackets in brackets
        raise _illegal_steps("transforms is not JSON") from None


def _check_sides(step: ImageStep, path: str, maximum: int) -> None:
    if isinstance(step, Resize):
        require_integer(step.width or 1, f"{path}.width", minimum=1, maximum=maximum)
        require_integer(step.height or 1, f"{path}.height", minimum=1, maximum=maximum)


def _step(entry: object, path: str) -> ImageStep:
    """Return one step; `path` names it in errors, as in `transforms[0]`."""
    if not isinstance(entry, list) or not entry:
        raise _illegal_steps(f"{path} is an array of a name and its arguments")
    name = require_choice(entry[0], path, STEP_NAMES)
    arguments = entry[1:]
    match name:
        case "resize":
            options = _options(arguments, path, ("width", "height", "fit", "withoutEnlargement"))
            return resize_of(options, f"{path}.")
        case "extract":
            return _extract(arguments, path)
        case "rotate":
            # Full turns change nothing, and equal images must have equal keys.
            angle = _number(arguments, path, default=0, minimum=-3600, maximum=3600)
            return Rotate(angle % 360)
        case "blur":
            return Blur(_number(arguments, path, default=1, minimum=0.3, maximum=MAX_SIGMA))
        case "sharpen":
            return Sharpen(_number(arguments, path, default=1, minimum=0.3, maximum=MAX_SIGMA))
        case "trim":
            return Trim(_number(arguments, path, default=10, minimum=0, maximum=255))
        case "tint":
            return _tint(arguments, path)
    if arguments:
        raise _illegal_steps(f"{path} takes no argument")
    return _STEPS_WITHOUT_ARGUMENT[name]


def _number(
    arguments: Sequence[object], path: str, *, default: float, minimum: float, maximum: float
) -> float:
    """Return the one argument of a step, a number that may be left out."""
    if len(arguments) > 1:
        raise _illegal_steps(f"{path} takes one argument")
    return require_number(next(iter(arguments), default), path, minimum=minimum, maximum=maximum)


def _options(arguments: Sequence[object], path: str, known: Sequence[str]) -> Mapping[str, object]:
    """Return the one argument, an object with no other keys than these; nulls are left out."""
    options = arguments[0] if len(arguments) == 1 else None
    # A misspelt option would be ignored without a word.
    if not isinstance(options, dict) or not options.keys() <= set(known):
        raise _illegal_steps(f"{path} takes an object of {', '.join(known)}")
    return {key: value for key, value in options.items() if value is not None}


def resize_of(
    options: Mapping[str, object], prefix: str = "", *, maximum: int = MAX_SIDE
) -> Resize:
    """Return the resize of width, height, fit and withoutEnlargement; one side must be there."""
    width = _side(options, "width", prefix, maximum)
    height = _side(options, "height", prefix, maximum)
    fit = require_choice(options.get("fit", FITS[0]), f"{prefix}fit", FITS)
    enlarge = not require_boolean(
        options.get("withoutEnlargement", False), f"{prefix}withoutEnlargement"
    )
    if width is None and height is None:
        raise illegal_transform(
            f"{prefix}width or {prefix}height is needed", parameter=prefix or "width"
        )
    # With one side alone there is nothing to fit, and equal images must have equal keys.
    if width is None or height is None:
        fit = FITS[0]
    return Resize(width, height, fit, enlarge)


def _side(options: Mapping[str, object], key: str, prefix: str, maximum: int) -> int | None:
    if key not in options:
        return None
    return require_integer(options[key], prefix + key, minimum=1, maximum=maximum)


def _extract(arguments: Sequence[object], path: str) -> ImageStep:
    # Coordinates begin at 0; a part without a width or a height would be no image.
    minimums = {"left": 0, "top": 0, "width": 1, "height": 1}
    options = _options(arguments, path, tuple(minimums))
    numbers = [
        require_integer(options.get(name), f"{path}.{name}", minimum=minimum, maximum=MAX_SIDE)
        for name, minimum in minimums.items()
    ]
    return Extract(*numbers)


def _tint(arguments: Sequence[object], path: str) -> ImageStep:
    text = str(arguments[0]) if len(arguments) == 1 else ""
    colour = "".join(text.lower().split())
    in_hexadecimal = _HEXADECIMAL_COLOUR.fullmatch(colour)
    if in_hexadecimal:
        digits = in_hexadecimal[1]
        if len(digits) == 3:  # #f80 is short for #ff8800
            digits = "".join(digit * 2 for digit in digits)
        return Tint(*bytes.fromhex(digits))
    in_decimal = _DECIMAL_COLOUR.fullmatch(colour)
    if in_decimal:
        shades = in_decimal.groups()
        return Tint(*(require_integer(each, path, minimum=0, maximum=255) for each in shades))
    raise _illegal_steps(f"{path} takes a colour such as #ff8800 or rgb(255, 136, 0)")
