"""YAML is read as the values of JSON that it was written from."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from cms.schema_sync.document_texts import MAX_LEVELS, read_yaml, write_yaml

TEXTS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"))
WORDS = ["yes", "no", "null", "~", "1e3", "0x1F", "12:30", "2020-01-01", "<<", "=", "- a", "1_0"]
LEAVES = (
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.decimals(allow_nan=False, allow_infinity=False).filter(
        lambda number: number != number.to_integral_value()
    )
    | st.sampled_from(WORDS)
    | TEXTS
)
VALUES: st.SearchStrategy[Any] = st.recursive(
    LEAVES,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXTS, inner, max_size=4),
    max_leaves=12,
)


@given(st.dictionaries(TEXTS | st.sampled_from(WORDS), VALUES, max_size=4))
@example({"a\x85b": "\x85", "b": ["a \u2028 b", "a\r\nb"]})
def test_what_was_written_is_read_again(document: dict[str, Any]) -> None:
    assert read_yaml(write_yaml(document)) == document


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("yes", True),
        ("'yes'", "yes"),
        ("0.10", Decimal("0.10")),
        ("12345678901234567890.5", Decimal("12345678901234567890.5")),
        ("2020-01-01", "2020-01-01"),
        ("12:30", "12:30"),
        ("0x1F", "0x1F"),
        ("{a: [1, ~]}", {"a": [1, None]}),
        ("[" * MAX_LEVELS + "]" * MAX_LEVELS, None),
    ],
)
def test_plain_values(text: str, value: object) -> None:
    result = read_yaml(text.encode())
    if value is not None:
        assert repr(result) == repr(value)


@pytest.mark.parametrize("levels", [MAX_LEVELS + 1, 100_000])
def test_levels_are_limited(levels: int) -> None:
    with pytest.raises(ValueError, match="nested too deeply"):
        read_yaml(b"[" * levels + b"]" * levels)


def test_characters_that_yaml_lacks_are_reported_with_their_line() -> None:
    with pytest.raises(ValueError, match=r"^it has the character U\+0007 at line 2$"):
        read_yaml("a: äöü\nb: \x07\n\n\n\n\n".encode())
