"""Checks of the values of options."""

from __future__ import annotations

import pytest

from cms.option_checks import (
    OptionCheck,
    OptionError,
    boolean,
    json_object,
    one_of,
    text,
    texts,
    whole_number,
)

FROM_1_TO_5 = whole_number(1, 5)
A_OR_B = one_of("a", "b")


@pytest.mark.parametrize(
    ("check", "value"),
    [
        (text, "x"),
        (boolean, False),
        (json_object, {}),
        (FROM_1_TO_5, 1),
        (FROM_1_TO_5, "5"),
        (A_OR_B, "b"),
        (texts, []),
        (texts, ["", "x"]),
    ],
)
def test_values_that_fit_pass(check: OptionCheck, value: object) -> None:
    check(value)


@pytest.mark.parametrize(
    ("check", "value", "reason"),
    [
        (text, " ", "it is a text"),
        (text, 1, "it is a text"),
        (boolean, 1, "it is true or false"),
        (json_object, [], "it is an object"),
        (FROM_1_TO_5, 0, "it is from 1 to 5"),
        (FROM_1_TO_5, "6", "it is from 1 to 5"),
        (FROM_1_TO_5, True, "it is a whole number"),
        (FROM_1_TO_5, 1.0, "it is a whole number"),
        (FROM_1_TO_5, "-1", "it is a whole number"),
        (FROM_1_TO_5, "1" * 5_000, "it is a whole number"),
        (A_OR_B, "c", "it is one of a, b"),
        (A_OR_B, None, "it is one of a, b"),
        (texts, "x", "it is a list of texts"),
    ],
)
def test_other_values_are_refused_with_what_the_option_takes(
    check: OptionCheck, value: object, reason: str
) -> None:
    with pytest.raises(OptionError) as refused:
        check(value)
    assert (str(refused.value), refused.value.path) == (reason, ())


def test_a_wrong_element_of_a_list_is_named_by_its_index() -> None:
    with pytest.raises(OptionError) as refused:
        texts(["a", "b", 3])
    assert refused.value.path == (2,)
