"""The header of an imported CSV file: the names of fields, and how the cells below are read."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from types import MappingProxyType

from cms import jsontext
from cms.digits import TooManyDigits
from cms.errors import Refused, invalid_payload
from cms.items.transfer.formats import unescape_formula
from cms.items.transfer.import_problems import ImportProblems, refusal_at
from cms.items.transfer.sources import ParseCell, ParseCells, SourceColumn
from cms.items.write.calls import WriteCall
from cms.items.write.stages.parsed import Expects
from cms.query.plan.links import link_of, target_collections
from cms.schema.model import Field
from cms.schema.payload import invalid_item
from cms.schema.types.field_type import Cell


def source_columns(
    call: WriteCall, cells: Sequence[str], line: int, problems: ImportProblems
) -> list[SourceColumn]:
    """Return the columns of a header.

    Raises `Refused` with the names that the caller may not write, and with those that stand in the
    header twice.
    """
    names: list[str] = []
    for cell in cells:
        name = cell
        # Some programs put blanks around names.
        if name not in call.collection.fields:
            name = name.strip()
        # An export escapes names like any other text, because a field may be called "=total".
        if name:
            name = unescape_formula(name)
        names.append(name)
    if not names:
        raise invalid_payload("The file has no header with the names of fields", line=line)
    collection = call.collection
    for name, count in Counter(names).items():
        if count > 1:
            problem = invalid_item("the header names it twice", collection.name, name)
            problems.add(problem, line)
    _check_names(call, names, line, problems)
    problems.refuse()
    return [_source_column(call, collection.fields[name]) for name in names]


def _check_names(
    call: WriteCall, names: Sequence[str], line: int, problems: ImportProblems
) -> None:
    """Parse an item that names every field and holds no values."""
    fields = call.collection.fields
    item: dict[str, object] = {}
    for name in names:
        item[name] = None
        # A list takes no null, and an empty one changes nothing.
        if name in fields and not fields[name].has_value:
            item[name] = []
    parser = call.payload_parser()
    try:
        # Rows with a stored key are changes and all others new: a name is allowed for either.
        parser.parse(call.collection, [item], Expects.ANY)
    except Refused as refused:
        # Past the first hundred problems the parser stops; those are told with their number.
        if refused.total <= len(refused.problems):
            raise refusal_at(line, refused) from refused
    for _, problem in parser.problems.entries:
        problems.add(problem, line)
    # Problems beyond the first hundred are counted, not kept.
    problems.total += parser.problems.total - len(parser.problems.entries)


def _source_column(call: WriteCall, field: Field) -> SourceColumn:
    catalogue = call.context.snapshot.catalogue
    is_relational = bool(
        link_of(catalogue, call.collection, field.name)
        or target_collections(catalogue, call.collection, field.name)
    )
    parse_cell = cell_parser(field, is_relational=is_relational)
    return SourceColumn(
        field.name,
        parse_cell,
        COLUMN_PARSERS.get(parse_cell),
        takes_null=field.has_value,
    )


# Cells, read as exports write them


MAX_SHORT_DIGITS = 17
"""Whole numbers of up to so many digits are read by `int`: all of them fit 64 bits."""


def cell_parser(field: Field, *, is_relational: bool) -> ParseCell:
    """Return the function that parses one cell of a field; cells are never empty."""
    # A field without a value of its own holds lists of related items.
    if not field.has_value:
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
