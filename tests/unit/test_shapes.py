"""Query strings without the operands of their filters mean what they mean with them."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from cms.errors import Refused
from cms.query.language.ast import ParsedQuery
from cms.query.language.paging import PageSizes
from cms.query.language.parse import parse, parse_query_string
from cms.query.language.query_strings import shape_of

KEYS = (
    *("title", "author", "0", "1", "", "a b", "é", "x%", "%5Feq", "%5B_eq%5D"),
    *(
        "_and",
        "_or",
        "_some",
        "_none",
        "_filter",
        "_limit",
        "_eq",
        "_neq",
        "_contains",
        "_in",
        "_between",
        "_null",
    ),
)
VALUES = (
    "5",
    "",
    "a+b",
    "%41",
    "a,b",
    "é",
    "$NOW",
    "%24NOW",
    "$NOW(x)",
    "$CURRENT_USER",
    "a=b",
    "[_eq]=c",
    "true",
    "{}",
)
PARTS = st.lists(
    st.sampled_from([f"[{key}]" for key in KEYS] + ["%5B_eq%5D", "%5btitle%5d", "[]", "["]),
    max_size=5,
)
PAIRS = st.tuples(
    st.sampled_from(("filter", "deep", "alias", "search", "fields", "limit", "x")), PARTS
)
ENTRIES = st.tuples(PAIRS, st.sampled_from(("=", "")), st.sampled_from((*VALUES, "%00", "\0")))
TAKEN = st.builds(
    lambda path, operator, value: f"filter{path}[{operator}]={value}",
    st.sampled_from(("[title]", "[_or][0][title]", "[author][_some][name]", "%5Btitle%5D")),
    st.sampled_from(("_eq", "_contains", "_gte")),
    st.sampled_from(VALUES),
)
ANY = st.builds(lambda parts: f"{parts[0][0]}{''.join(parts[0][1])}{parts[1]}{parts[2]}", ENTRIES)
QUERY_STRINGS = st.lists(TAKEN | ANY, max_size=4).map("&".join)


def parsed(query_string: str) -> ParsedQuery | None:
    try:
        return parse_query_string(query_string, PageSizes())
    except Refused:
        return None


def fill_gaps(query_string: str) -> ParsedQuery | None:
    shape = shape_of(query_string)
    try:
        parsed = parse(shape.params(), PageSizes())
    except Refused:
        return None
    return ParsedQuery(parsed.query, shape.fill_gaps(parsed.literals))


@given(QUERY_STRINGS)
@example("filter[x][_eq][_eq]=5&limit=2")
@example("filter[x][%5Feq][_eq]=5")
@example("filter[x][_contains][a][_eq]=5")
@example("filter[a][_eq]=1&filter[a][_eq]=2")
@example("deep[tags][_filter][name][_eq]=5&limit=7&offset=3")
def test_a_shape_filled_again_is_what_was_sent(query_string: str) -> None:
    assert fill_gaps(query_string) == parsed(query_string)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("filter[title][_eq]=a", "filter[title][_eq]=b%26+c"),
        ("limit=5&filter%5Bviews%5D%5B_gte%5D=1", "limit=5&filter%5Bviews%5D%5B_gte%5D=2"),
        ("filter%5bviews%5d%5b_gte%5d=1", "filter%5bviews%5d%5b_gte%5d=2"),
        (
            "filter[_or][0][a][_contains]=a&filter[_or][1][b][_lt]=",
            "filter[_or][0][a][_contains]=&filter[_or][1][b][_lt]=5",
        ),
        ("deep[tags][_filter][name][_eq]=a&sort=id", "deep[tags][_filter][name][_eq]=b&sort=id"),
    ],
)
def test_query_strings_that_differ_in_operands_have_one_shape(one: str, other: str) -> None:
    assert shape_of(one).text == shape_of(other).text
    assert shape_of(one).operands != shape_of(other).operands


@pytest.mark.parametrize(
    "query_string",
    [
        "",
        "search=[_eq]=5",
        "filter[title][_in]=1,2",
        "filter[title][_eq]=$NOW",
        "filter[title][_eq]=%24CURRENT_USER",
        "filter[title][_eq]=é",
        "filter[title][_eq]=%00",
        'filter={"title":{"_eq":5}}',
    ],
)
def test_what_must_be_looked_at_stays(query_string: str) -> None:
    assert shape_of(query_string).text == query_string
