"""JSON in and out is exact, and refuses what cannot be stored."""

from __future__ import annotations

import json
from contextlib import suppress
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cms import jsontext
from cms.digits import TooManyDigits

TEXT = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]))
NUMBERS = st.integers() | st.decimals(allow_nan=False, allow_infinity=False).filter(
    lambda number: abs(number.adjusted()) < 400 and len(number.as_tuple().digits) < 400
)
LEAVES = st.none() | st.booleans() | NUMBERS | TEXT
VALUES = st.recursive(
    LEAVES, lambda inner: st.lists(inner) | st.dictionaries(TEXT, inner), max_leaves=20
)


@given(VALUES)
def test_what_is_written_is_read_back_with_all_its_digits(value: object) -> None:
    written = jsontext.dumps(jsontext.loads(jsontext.dumps(wide(value))))
    assert json.loads(written, parse_float=Decimal) == json.loads(
        jsontext.dumps(wide(value)), parse_float=Decimal
    )


def wide(value: object) -> object:
    """Whole numbers beyond 64 bits as `loads` gives them."""
    if isinstance(value, list):
        return [wide(item) for item in value]
    if isinstance(value, dict):
        return {key: wide(item) for key, item in value.items()}
    return (
        Decimal(value)
        if isinstance(value, int) and not isinstance(value, bool) and abs(value) >= 2**63
        else value
    )


@given(st.text() | st.binary())
def test_any_text_is_either_read_or_refused_with_a_reason(raw: str | bytes) -> None:
    with suppress(ValueError):
        jsontext.loads(raw)


@given(st.from_regex(r"-?(0|[1-9][0-9]{0,60})(\.[0-9]{1,60})?", fullmatch=True))
def test_a_number_keeps_its_digits(digits: str) -> None:
    assert Decimal(jsontext.dumps(jsontext.loads(digits)).decode()) == Decimal(digits)


def test_a_number_of_1000_digits_is_read() -> None:
    digits = "9" * 1_000
    assert jsontext.dumps(jsontext.loads(digits)).decode() == digits


@pytest.mark.parametrize(
    ("raw", "path"),
    [
        ("9" * 1_001, ()),
        ('{"a": [1, {"b": 1e131071}], "c": 1e1000}', ("a", 1, "b")),
        ('{"a": 1e-1001, "a": 1}', ()),
    ],
)
def test_a_number_that_is_too_long_is_refused_with_the_path_to_it(
    raw: str, path: tuple[str | int, ...]
) -> None:
    with pytest.raises(TooManyDigits) as caught:
        jsontext.loads(raw)
    assert caught.value.path == path


def test_a_text_that_is_no_json_is_reported_as_such_whatever_numbers_it_holds() -> None:
    with pytest.raises(ValueError, match="line 1, column 11"):
        jsontext.loads("[1e131071,")


@pytest.mark.parametrize("digits", ["9" * 100_000, "1E+131071", "1E-16383"])
def test_what_the_database_holds_already_is_read_however_long_it_is(digits: str) -> None:
    assert jsontext.dumps(jsontext.loads_stored(digits)).decode() == digits


@pytest.mark.parametrize(
    "raw",
    [
        "NaN",
        "[Infinity]",
        '"\\u0000"',
        '{"\\u0000": 1}',
        '"\\\\\\u0000"',
        '"\\ud800"',
        '"\\uDC00\\ud800"',
        '{"\\udfff": 1}',
        "[" * 100_000,
        "1e99999999999999999999",
        "",
        "{",
        "'a'",
        "01",
        '"\n"',
        b"\xff",
        b'"\xed\xa0\x80"',
    ],
)
def test_what_cannot_be_stored_or_is_not_json_is_refused(raw: str | bytes) -> None:
    with pytest.raises(ValueError):
        jsontext.loads(raw)


@pytest.mark.parametrize(
    ("raw", "value"),
    [
        ('"\\\\u0000"', "\\u0000"),
        ('"\\ud83d\\ude00"', "😀"),
        ('"\\\\ud800"', "\\ud800"),
        ("9223372036854775807", 2**63 - 1),
        ("-9223372036854775808", -(2**63)),
        ("1.10", Decimal("1.10")),
        ('{"a": 1, "a": 2}', {"a": 2}),
        (b'"\xc3\xa9"', "é"),
    ],
)
def test_values_of_json(raw: str | bytes, value: object) -> None:
    assert jsontext.loads(raw) == value


@pytest.mark.parametrize("value", [object(), {1, 2}, b"x", object])
def test_what_has_no_json_form_is_a_type_error(value: object) -> None:
    with pytest.raises(TypeError):
        jsontext.dumps(value)


def test_ready_json_is_copied_as_it_is() -> None:
    assert jsontext.dumps({"a": jsontext.raw_json('{"b":1.10}')}) == b'{"a":{"b":1.10}}'
