"""The cells of imported CSV, read as exports write them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

from cms import jsontext
from cms.digits import TooManyDigits
from cms.items.transfer.formats import unescape_formula
from cms.items.transfer.sources import ParseCell, ParseCells
from cms.schema.model import Field
from cms.schema.types.field_type import Cell

MAX_SHORT_DIGITS = 17
"""Whole numbers of up to so many digits are read by `int`: all of them fit 64 bits."""


def cell_parser(field: Field, *, is_relational: bool) -> ParseCell:
    """Return the function that parses one cell of a field; cells are never empty."""
    # A field without a column holds lists of related items.
    if field.column is None:
        return parse_json
    # The cell may hold the related item itself instead of its key.
    if is_relational and field.type.cell is Cell.TEXT:
        return parse_json_or_text
    return _PARSERS[field.type.cell]


def parse_json(text: str) -> object:
    """Return the value of JSON; raises ValueError for other text."""
    try:
        return jsontext.loads(text)
    except TooManyDigits:
        # It is a ValueError as well, but has a problem of its own, with the path to the number.
        raise
    except ValueError as error:
        raise ValueError(f"the cell is not usable JSON: {error}") from None


def parse_number(text: str) -> object:
    """Return a short whole number as int, and any other text for the field's type to read.

    Most numbers are short and whole; `int` reads them in a fraction of the time.
    """
    if len(text) <= MAX_SHORT_DIGITS and text.isascii() and text.isdecimal():
        return int(text)
    # Exports have "NaN" and "Infinity" as JSON has them.
    if text[0] == '"':
        return parse_json(text)
    return parse_json_or_text(text)


def parse_json_or_text(text: str) -> object:
    """Return a list of a csv field or an object of a related item; other text stays text."""
    if text[0] not in "[{":
        return unescape_formula(text)
    try:
        return jsontext.loads(text)
    except TooManyDigits:
        raise
    except ValueError:
        # A text that only looks like JSON, such as "[draft]".
        return text


def _parse_numbers(texts: Sequence[str]) -> list[int] | None:
    # One test of all texts joined is faster than a test of each.
    joined = "".join(texts)
    if not (joined.isascii() and joined.isdecimal()):
        return None
    # Longer ones may not fit 64 bits, or the number of digits that is allowed.
    if len(max(texts, key=len)) > MAX_SHORT_DIGITS:
        return None
    return list(map(int, texts))


def _parse_texts(texts: Sequence[str]) -> Sequence[str] | None:
    # Only texts with an apostrophe can be escaped formulas.
    if "'" in "".join(texts):
        return None
    return texts


_PARSERS: Mapping[Cell, ParseCell] = MappingProxyType(
    {
        Cell.TEXT: unescape_formula,
        Cell.NUMBER: parse_number,
        Cell.JSON: parse_json,
        Cell.JSON_OR_TEXT: parse_json_or_text,
    }
)

COLUMN_PARSERS: Mapping[ParseCell, ParseCells] = MappingProxyType(
    {parse_number: _parse_numbers, unescape_formula: _parse_texts}
)
"""For parsers of one cell, those that parse a whole column of usual cells together."""
