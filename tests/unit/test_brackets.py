"""Query strings with brackets as nested values."""

from __future__ import annotations

from contextlib import suppress
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cms.errors import Refused
from cms.query.language.query_strings import as_list, nested_params

KEYS = st.text(
    st.characters(exclude_characters="\0[]", exclude_categories=["Cs"]), min_size=1, max_size=8
)
VALUES = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=8)
TREES = st.recursive(
    VALUES, lambda inner: st.dictionaries(KEYS, inner, min_size=1, max_size=3), max_leaves=10
)


def pairs(tree: object, name: str) -> list[str]:
    if isinstance(tree, dict):
        return [
            pair
            for key, value in tree.items()
            for pair in pairs(value, f"{name}[{quote(key, safe='')}]")
        ]
    return [f"{name}={quote(str(tree), safe='')}"]


@given(TREES)
def test_every_tree_comes_back(tree: object) -> None:
    assert nested_params("&".join(pairs(tree, "filter"))) == {"filter": tree}


@given(st.text())
def test_any_text_is_either_read_or_refused(query_string: str) -> None:
    with suppress(Refused):
        assert isinstance(nested_params(query_string), dict)


@pytest.mark.parametrize(
    ("query_string", "value"),
    [
        ("", {}),
        ("a", {"a": ""}),
        ("a=", {"a": ""}),
        ("a=1&a=2", {"a": ["1", "2"]}),
        ("a[]=1", {"a": ["1"]}),
        ("a[]=1&a[]=2&a=3", {"a": ["1", "2", "3"]}),
        ("a[b]=1&a[c]=2", {"a": {"b": "1", "c": "2"}}),
        ("a[b][]=1&a[b][]=2", {"a": {"b": ["1", "2"]}}),
        ("a[0]=x&a[1]=y", {"a": {"0": "x", "1": "y"}}),
        ("a%5Bb%5D=1%202+3", {"a": {"b": "1 2 3"}}),
        ("a[b=1", {"a[b": "1"}),
        ("a[b]c=1", {"a[b]c": "1"}),
        ("[a]=1", {"[a]": "1"}),
        ("s=%C3%A9", {"s": "é"}),
        ("s=\u00c3\u00a9", {"s": "é"}),
        ("s=%ff", {"s": "\ufffd"}),
    ],
)
def test_forms(query_string: str, value: object) -> None:
    assert nested_params(query_string) == value


@pytest.mark.parametrize(
    "query_string",
    [
        "a=1&a[b]=2",
        "a[b]=2&a=1",
        "a[b]=1&a[b][c]=2",
        "a=%00",
        "%00=a",
        "a" + "[b]" * 60 + "=1",
        "a=&" * 5_001,
    ],
)
def test_what_is_refused(query_string: str) -> None:
    with pytest.raises(Refused, match="Invalid query"):
        nested_params(query_string)


@pytest.mark.parametrize(
    ("query_string", "parameter"),
    [("limit=1&search=a%00b", "search"), ("filter[a%00]=1", "filter"), ("x%00=1", "x\0")],
)
def test_a_zero_character_is_refused_with_its_parameter(query_string: str, parameter: str) -> None:
    with pytest.raises(Refused, match=r"U\+0000") as refused:
        nested_params(query_string)
    assert refused.value.problems[0].extensions["parameter"] == parameter


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ({"0": "a", "1": "b"}, ["a", "b"]),
        ({"10": "c", "9": "b", "2": "a"}, ["a", "b", "c"]),
        ({"0": "a", "x": "b"}, {"0": "a", "x": "b"}),
        ({"٣": "a"}, {"٣": "a"}),
        ({}, {}),
        ("a", "a"),
    ],
)
def test_lists_by_number(value: object, expected: object) -> None:
    assert as_list(value) == expected
