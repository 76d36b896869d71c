"""Cells of imported CSV, read without a file and without a database."""

from __future__ import annotations

import pytest

from cms.digits import TooManyDigits
from cms.items.transfer.formats import unescape_formula
from cms.items.transfer.header import COLUMN_PARSERS, parse_json, parse_json_or_text, parse_number


@pytest.mark.parametrize(
    ("cell", "value"),
    [
        ("7", 7),
        ("007", 7),
        ("9" * 17, int("9" * 17)),
        ("9" * 18, "9" * 18),
        ("-7", "-7"),
        ("1.50", "1.50"),
        ("٣", "٣"),
        ("'-7", "-7"),
    ],
)
def test_short_whole_numbers_are_numbers_and_others_are_left_to_the_type(
    cell: str, value: object
) -> None:
    parsed = parse_number(cell)
    assert (parsed, type(parsed)) == (value, type(value))


@pytest.mark.parametrize(
    ("cell", "value"),
    [
        ('["a", 1]', ["a", 1]),
        ('{"id": 1}', {"id": 1}),
        ("[draft]", "[draft]"),
        ("{", "{"),
        ("1", "1"),
        ("'=1+1", "=1+1"),
        ("''=1", "'=1"),
        ("it's", "it's"),
        ("'tis", "'tis"),
    ],
)
def test_only_lists_and_objects_are_json_where_a_cell_may_be_text(cell: str, value: object) -> None:
    assert parse_json_or_text(cell) == value


def test_what_is_no_json_is_refused_and_too_many_digits_have_a_problem_of_their_own() -> None:
    assert parse_json("[1]") == [1]
    with pytest.raises(ValueError, match="the cell is not usable JSON"):
        parse_json("[1")
    for parse in (parse_json, parse_json_or_text):
        with pytest.raises(TooManyDigits):
            parse("[1e131072]")


@pytest.mark.parametrize(
    "cells",
    [["1", "22"], ["1", "-2"], ["1", "٣"], ["1", "9" * 18], ["a", "b"], ["a", "'=b"], ["it's"]],
)
def test_a_column_is_parsed_together_as_each_cell_alone_or_not_at_all(cells: list[str]) -> None:
    for parse_cell, parse_column in COLUMN_PARSERS.items():
        together = parse_column(cells)
        assert together is None or list(together) == [parse_cell(cell) for cell in cells]


def test_usual_columns_are_parsed_together() -> None:
    assert COLUMN_PARSERS[parse_number](["1", "22"]) == [1, 22]
    assert COLUMN_PARSERS[unescape_formula](["a", "b"]) == ["a", "b"]
