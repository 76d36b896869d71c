"""The digits of a number are counted as if it were written out, without being written out."""

from __future__ import annotations

import pytest

from cms.digits import TooManyDigits, check_numbers, decimal_of


@pytest.mark.parametrize(
    "text",
    [
        "9" * 1_000,
        "-" + "9" * 500 + "." + "9" * 500,
        "1e999",
        "1E+999",
        "1.5e998",
        "1e-1000",
        "0." + "0" * 999 + "1",
        "0" * 500 + "9" * 1_000,
        "0e0",
        "1e0000000000000001",
    ],
)
def test_a_number_of_1000_digits_is_taken(text: str) -> None:
    assert decimal_of(text).is_finite()


@pytest.mark.parametrize(
    "text",
    [
        "9" * 1_001,
        "9" * 501 + "." + "9" * 500,
        "1e1000",
        "1.5e1000",
        "1e-1001",
        "0." + "0" * 1_000 + "1",
        "0e1000",
        "0e-1001",
        "1e131071",
        "1e-16383",
        "1e999999999999999999",
        "1e9999999999999999999999",
        "-1e-9999999999999999999999",
        "9" * 1_000_000,
        "1e" + "9" * 100_000,
    ],
)
def test_a_number_of_more_digits_is_refused(text: str) -> None:
    with pytest.raises(TooManyDigits):
        decimal_of(text)


@pytest.mark.quick(2)
@pytest.mark.parametrize("text", ["1", "1.", "1e", "1e1 ", ".1e", "(1e5,"])
def test_texts_of_any_length_are_looked_through_in_one_go(text: str) -> None:
    check_numbers(
        text * 200_000
    )  # with a search that goes back over digits this would take minutes
