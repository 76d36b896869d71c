"""The steps of a transform as values, parsed from the JSON of `transforms` (docs/assets.md)."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

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


def illegal_transform(reason: str, **extensions: object) -> Refused:
    """Return the refusal of a transform with its reason; `extensions` say where in the request."""
    message = f"Illegal asset transformation. {reason}."
    return Refused(
        Problem("ILLEGAL_ASSET_TRANSFORMATION", message, {"reason": reason, **extensions})
    )


def parse_steps(value: object, *, maximum: int = MAX_SIDE) -> tuple[ImageStep, ...]:
    """Return the steps of `transforms`: an array of arrays, each a name and its arguments.

    It may come as JSON text. A resize makes sides of `maximum` pixels at most. Raises `Refused`
    ILLEGAL_ASSET_TRANSFORMATION.
    """
    entries = value
    if isinstance(value, str):
        entries = _json(value)
    if not isinstance(entries, list):
        raise illegal_transform("transforms is a JSON array of operations", parameter="transforms")
    # Each step takes time and memory, and anybody may ask for them.
    if len(entries) > MAX_STEPS:
        raise illegal_transform(
            f"transforms holds at most {MAX_STEPS} operations", parameter="transforms"
        )
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
        raise illegal_transform("transforms is not JSON", parameter="transforms") from None


def _check_sides(step: ImageStep, path: str, maximum: int) -> None:
    if isinstance(step, Resize):
        require_integer(step.width or 1, f"{path}.width", minimum=1, maximum=maximum)
        require_integer(step.height or 1, f"{path}.height", minimum=1, maximum=maximum)


def _step(entry: object, path: str) -> ImageStep:
    """Return one step; `path` names it in errors, as in `transforms[0]`."""
    if not isinstance(entry, list) or not entry:
        raise illegal_transform(
            f"{path} is an array of a name and its arguments", parameter="transforms"
        )
    parse = STEP_PARSERS[require_choice(entry[0], path, tuple(STEP_PARSERS))]
    return parse(entry[1:], path)


Arguments = Sequence[object]


def _without_argument(step: ImageStep) -> Callable[[Arguments, str], ImageStep]:
    def parse(arguments: Arguments, path: str) -> ImageStep:
        if arguments:
            raise illegal_transform(f"{path} takes no argument", parameter="transforms")
        return step

    return parse


def _one_number(
    make: Callable[[float], ImageStep], *, default: float, minimum: float, maximum: float
) -> Callable[[Arguments, str], ImageStep]:
    def parse(arguments: Arguments, path: str) -> ImageStep:
        if len(arguments) > 1:
            raise illegal_transform(f"{path} takes one argument", parameter="transforms")
        argument = next(iter(arguments), default)
        return make(require_number(argument, path, minimum=minimum, maximum=maximum))

    return parse


def _options(arguments: Arguments, path: str, known: Sequence[str]) -> Mapping[str, object]:
    """Return the one argument, an object with no other keys than these; nulls are left out."""
    options = None
    if len(arguments) == 1:
        options = arguments[0]
    # A misspelt option would be ignored without a word.
    if not isinstance(options, dict) or not options.keys() <= set(known):
        raise illegal_transform(
            f"{path} takes an object of {', '.join(known)}", parameter="transforms"
        )
    return {key: value for key, value in options.items() if value is not None}


def _resize(arguments: Arguments, path: str) -> ImageStep:
    return resize_of(
        _options(arguments, path, ("width", "height", "fit", "withoutEnlargement")), f"{path}."
    )


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


def _extract(arguments: Arguments, path: str) -> ImageStep:
    # Coordinates begin at 0; a part without a width or a height would be no image.
    minimums = {"left": 0, "top": 0, "width": 1, "height": 1}
    options = _options(arguments, path, tuple(minimums))
    numbers = []
    for name, minimum in minimums.items():
        argument_path = f"{path}.{name}"
        number = require_integer(
            options.get(name), argument_path, minimum=minimum, maximum=MAX_SIDE
        )
        numbers.append(number)
    return Extract(*numbers)


def _rotate(arguments: Arguments, path: str) -> ImageStep:
    parse = _one_number(Rotate, default=0, minimum=-3600, maximum=3600)
    rotate = parse(arguments, path)
    assert isinstance(rotate, Rotate)
    # Full turns change nothing, and equal images must have equal keys.
    return Rotate(rotate.angle % 360)


def _tint(arguments: Arguments, path: str) -> ImageStep:
    colour = ""
    if len(arguments) == 1:
        colour = "".join(str(arguments[0]).lower().split())
    in_hexadecimal = _HEXADECIMAL_COLOUR.fullmatch(colour)
    if in_hexadecimal:
        digits = in_hexadecimal[1]
        if len(digits) == 3:  # #f80 is short for #ff8800
            digits = "".join(digit * 2 for digit in digits)
        return Tint(*bytes.fromhex(digits))
    in_decimal = _DECIMAL_COLOUR.fullmatch(colour)
    if in_decimal:
        red, green, blue = in_decimal.groups()
        return Tint(_shade(red, path), _shade(green, path), _shade(blue, path))
    raise illegal_transform(
        f"{path} takes a colour such as #ff8800 or rgb(255, 136, 0)", parameter="transforms"
    )


def _shade(digits: str, path: str) -> int:
    return require_integer(digits, path, minimum=0, maximum=255)


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
