"""JSON, exact to the last digit: the only place that reads or writes it."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from decimal import Decimal, InvalidOperation

import orjson

from cms.digits import JsonPathStep, TooManyDigits, decimal_of

# PostgreSQL writes dates as text. One that gets here is a mistake, and is refused like any other.
_OPTIONS = orjson.OPT_NON_STR_KEYS | orjson.OPT_PASSTHROUGH_DATETIME
# Behind an even number of backslashes: an odd one makes `\u0000` six characters of text.
_NUL_ESCAPE = re.compile(r"(?<!\\)(?:\\\\)*\\u0000")
NUL_REFUSAL = "the character U+0000 cannot be stored"
NESTED_TOO_DEEPLY = "it is nested too deeply"
_MAX_INT64_DIGITS = 18  # with so many, every number fits into 64 bits


class TooDeep(TypeError):
    """A value with more levels than are written as JSON."""


def loads(raw: str | bytes) -> object:
    """Return the value of a JSON text; numbers with a fraction or beyond 64 bits become `Decimal`.

    Raises ValueError with a reason: for text that is not JSON, for NaN and infinity, for nesting
    beyond the interpreter's depth, and for text that PostgreSQL cannot hold (U+0000, halves of
    surrogate pairs). Raises `TooManyDigits`, with the path to it, for a number that is too long.
    """
    try:
        decoded = raw.decode("utf-8") if isinstance(raw, bytes) else raw
        value: object = _decode(decoded)
        _refuse_unstorable(decoded, value)
    except RecursionError:
        raise ValueError(NESTED_TOO_DEEPLY) from None
    except UnicodeDecodeError:
        raise ValueError("it is not UTF-8") from None
    except json.JSONDecodeError as error:
        raise ValueError(f"{error.msg} at line {error.lineno}, column {error.colno}") from None
    return value


def _decode(text: str) -> object:
    try:
        return _DECODER.decode(text)
    except TooManyDigits as error:
        # Only a refused text is decoded twice: the second time to find the path to the number.
        raise _with_path(error, _MARKING_DECODER.decode(text), end=len(text)) from None


def loads_stored(text: str | bytes) -> object:
    """Return the value of JSON from PostgreSQL, where a column may hold what `loads` refuses."""
    value: object = _STORED_DECODER.decode(text.decode() if isinstance(text, bytes) else text)
    return value


def loads_optional(text: str | None) -> object:
    """Return the value of JSON from PostgreSQL, None where there is null."""
    return None if text is None else loads_stored(text)


def loads_at(text: str, start: int) -> tuple[object, int]:
    """Return the value that begins at `start` of a longer text, and where it ends."""
    try:
        value, end = _decode_first(text, start)
        _refuse_unstorable(text[start:end], value)
    except RecursionError:
        raise ValueError(NESTED_TOO_DEEPLY) from None
    return value, end


def _decode_first(text: str, start: int) -> tuple[object, int]:
    try:
        return _DECODER.raw_decode(text, start)
    except TooManyDigits as error:
        # A text that is not complete yet is refused as incomplete, not for its number.
        value, end = _MARKING_DECODER.raw_decode(text, start)
        raise _with_path(error, value, end=end) from None


def dumps_indented(value: object) -> bytes:
    """Return what `dumps` does, with a line for each value; raises as it does."""
    return dumps(value, _OPTIONS | orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE)


def dumps(value: object, options: int = _OPTIONS) -> bytes:
    """Return the JSON text of a value from `loads` or from a statement; options are of orjson.

    Raises `TooDeep` for nesting beyond 254 levels, and TypeError for a value without a JSON form.
    """
    try:
        return orjson.dumps(value, default=_encode_decimal, option=options)
    except TypeError as error:
        # orjson has no class of its own for it; the message begins with "Recursion limit".
        if "ecursion" in str(error):
            raise TooDeep(NESTED_TOO_DEEPLY) from None
        raise


raw_json: Callable[[str | bytes], object] = orjson.Fragment
"""Returns JSON text as a value that `dumps` copies unchanged; an answer may hold thousands."""


def _number(digits: str) -> int | Decimal:
    if len(digits) <= _MAX_INT64_DIGITS:
        return int(digits)
    return _int_if_fits(decimal_of(digits))


def _stored_number(digits: str) -> int | Decimal:
    if len(digits) <= _MAX_INT64_DIGITS:
        return int(digits)
    return _int_if_fits(_stored_decimal(digits))


def _stored_decimal(digits: str) -> Decimal:
    try:
        return Decimal(digits)
    except InvalidOperation:
        raise ValueError("a number's exponent is out of range") from None


def _int_if_fits(number: Decimal) -> int | Decimal:
    return int(number) if -(2**63) <= number < 2**63 else number


def _refuse_constant(name: str) -> object:
    raise ValueError(f"{name} is not JSON")


def _encode_decimal(value: object) -> object:
    if isinstance(value, Decimal):
        # As JSON text: a Decimal keeps its digits, 1.50 stays 1.50.
        return orjson.Fragment(str(value))
    raise TypeError(f"{type(value).__name__} has no JSON form")


def _refuse_unstorable(text: str, value: object) -> None:
    # Both can come from an escape only, so that most texts are not looked at any closer.
    if "\\u0000" in text and _NUL_ESCAPE.search(text):
        raise ValueError(NUL_REFUSAL)
    if "\\ud" in text.lower():
        try:
            json.dumps(value, ensure_ascii=False, default=str).encode("utf-8")
        except UnicodeEncodeError:
            raise ValueError("half of a surrogate pair is no character") from None


def _returning_error(read: Callable[[str], object]) -> Callable[[str], object]:
    """Make a reader of numbers return its error instead of raising it.

    The error can then be found in the decoded value, which gives the path to it.
    """

    def read_or_error(digits: str) -> object:
        try:
            return read(digits)
        except TooManyDigits as error:
            return error

    return read_or_error


def _with_path(error: TooManyDigits, value: object, *, end: int) -> TooManyDigits:
    """Return the error with the path to its number.

    Under a name that an object holds twice only the second value is kept, so a number may have no
    path.
    """
    located = next(_errors_in(value, ()), error)
    return TooManyDigits(located.text, located.path, end=end)


def _errors_in(value: object, path: tuple[JsonPathStep, ...]) -> Iterator[TooManyDigits]:
    """Yield the errors that stand in a value in place of numbers, each with the path to it."""
    if isinstance(value, TooManyDigits):
        yield TooManyDigits(value.text, path)
    elif isinstance(value, dict):
        for name, inner in value.items():
            yield from _errors_in(inner, (*path, name))
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            yield from _errors_in(inner, (*path, index))


# The standard library's decoder: orjson makes floats of all numbers with a fraction, and so loses
# digits.
_DECODER = json.JSONDecoder(
    parse_float=decimal_of, parse_int=_number, parse_constant=_refuse_constant
)
_STORED_DECODER = json.JSONDecoder(
    parse_float=_stored_decimal, parse_int=_stored_number, parse_constant=_refuse_constant
)
_MARKING_DECODER = json.JSONDecoder(
    parse_float=_returning_error(decimal_of),
    parse_int=_returning_error(_number),
    parse_constant=_refuse_constant,
)
