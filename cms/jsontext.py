"""JSON in and out, exact to the last digit: the one place where either is read or written."""

from __future__ import annotations

import json
import re
from decimal import Decimal, InvalidOperation

import orjson

_OPTIONS = orjson.OPT_NON_STR_KEYS | orjson.OPT_PASSTHROUGH_DATETIME
_NUL_ESCAPE = re.compile(r"(?<!\\)(?:\\\\)*\\u0000")
_MAX_INT64_DIGITS = 18


def loads(raw: str | bytes) -> object:
    """Return the value of a JSON text; numbers with a fraction or beyond 64 bits are `Decimal`.

    Raises ValueError with a reason for what is not JSON, for NaN and infinity, for nesting past the
    interpreter's depth, and for text that PostgreSQL cannot hold (U+0000, halves of surrogate pairs).
    """
    try:
        decoded = raw.decode("utf-8") if isinstance(raw, bytes) else raw
        value: object = _DECODER.decode(decoded)
        _refuse_unstorable(decoded, value)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    except UnicodeDecodeError:
        raise ValueError("it is not UTF-8") from None
    except json.JSONDecodeError as error:
        raise ValueError(f"{error.msg} at line {error.lineno}, column {error.colno}") from None
    return value


def stored(text: str) -> object:
    """Return the value of JSON text that PostgreSQL answered: a column may hold what `loads` would not let in."""
    value: object = _DECODER.decode(text)
    return value


def first_of(text: str, start: int) -> tuple[object, int]:
    """Return the value that begins at `start` of a longer text, as `loads` does, and where it ends."""
    try:
        value, end = _DECODER.raw_decode(text, start)
        _refuse_unstorable(text[start:end], value)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    return value, end


def dumps(value: object) -> bytes:
    """Return the JSON text of a value that `loads` made or that a statement answered.

    Raises TypeError for what has no JSON form, and for nesting past 254 levels.
    """
    return orjson.dumps(value, default=_digits, option=_OPTIONS)


def ready(raw: str | bytes) -> object:
    """Return JSON text as a value that `dumps` copies as it is."""
    return orjson.Fragment(raw)


def _number(digits: str) -> int | Decimal:
    return int(digits) if len(digits) <= _MAX_INT64_DIGITS else _wide(_decimal(digits))


def _decimal(digits: str) -> Decimal:
    try:
        return Decimal(digits)
    except InvalidOperation:
        raise ValueError("a number's exponent is out of range") from None


def _wide(number: Decimal) -> int | Decimal:
    return int(number) if -(2**63) <= number < 2**63 else number


def _constant(name: str) -> object:
    raise ValueError(f"{name} is not JSON")


def _digits(value: object) -> object:
    if isinstance(value, Decimal):
        return orjson.Fragment(str(value))
    raise TypeError(f"{type(value).__name__} has no JSON form")


def _refuse_unstorable(text: str, value: object) -> None:
    if "\\u0000" in text and _NUL_ESCAPE.search(text):
        raise ValueError("the character U+0000 cannot be stored")
    if "\\ud" in text.lower():
        try:
            json.dumps(value, ensure_ascii=False, default=str).encode("utf-8")
        except UnicodeEncodeError:
            raise ValueError("half of a surrogate pair is no character") from None


_DECODER = json.JSONDecoder(parse_float=_decimal, parse_int=_number, parse_constant=_constant)
