"""Literals stand beside the tree, variables in it."""

from __future__ import annotations

from contextlib import suppress
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cms.errors import Refused
from cms.query.language.ast import Caller, CallerKey, CallerValue, Now, Slot
from cms.query.language.literals import Literals, parse_variable
from cms.query.language.paging import PageSizes
from cms.query.language.parse import parse
from cms.query.plan.bindings import Bindings, Placeholder, bind_values
from cms.schema.names import parse_path

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)


def test_literals_are_numbered_in_the_order_in_which_they_come() -> None:
    literals = Literals()
    assert [literals.operand(value) for value in ("a", 5, "$CURRENT_USER", "a")] == [
        Slot(0),
        Slot(1),
        CallerKey(Caller.USER),
        Slot(2),
    ]
    assert literals.values == ["a", 5, "a"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("$NOW", Now()),
        ("$NOW(-1 hour)", Now(-1, "hour")),
        ("$NOW(+2days)", Now(2, "day")),
        ("$NOW( - 3 mo )", Now(-3, "month")),
        ("$NOW(-\t3\nmo)", Now(-3, "month")),
        ("$CURRENT_ROLE", CallerKey(Caller.ROLE)),
        ("$CURRENT_USER.role.name", CallerValue(Caller.USER, parse_path("role.name"))),
        ("$5", "$5"),
        ("$", "$"),
        ("now", "now"),
        (5, 5),
    ],
)
def test_variables(text: object, expected: object) -> None:
    assert parse_variable(text) == expected


@pytest.mark.parametrize(
    "text", ["$NOW(", "$NOW()", "$NOW(1)", "$NOW(1 aeon)", "$NOWADAYS", "$NOW(1.5 hours)"]
)
def test_a_time_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="time"):
        parse_variable(text)


@pytest.mark.parametrize("end", ["h)", "1", "- 1"])
def test_a_time_with_a_million_blanks_is_refused_without_trying_each_of_them_again(
    end: str,
) -> None:
    with pytest.raises(ValueError, match="time"):
        parse_variable("$NOW(" + " " * 1_000_000 + end)


def moment(now: Now) -> datetime:
    (bound,) = bind_values([Placeholder(now, lambda value: value, "x")], Bindings())
    assert isinstance(bound, datetime)
    return bound


@pytest.mark.parametrize(
    ("now", "moved"),
    [
        (Now(), timedelta(0)),
        (Now(-90, "second"), timedelta(seconds=-90)),
        (Now(2, "week"), timedelta(days=14)),
        (Now(250, "millisecond"), timedelta(milliseconds=250)),
    ],
)
def test_moments_are_moved(now: Now, moved: timedelta) -> None:
    before = datetime.now(UTC)
    moved_moment = moment(now)
    after = datetime.now(UTC)
    assert before + moved - timedelta(milliseconds=1) < moved_moment <= after + moved


@given(st.integers(-3000, 3000))
def test_months_keep_to_the_calendar(months: int) -> None:
    today = datetime.now(UTC)
    then = moment(Now(months, "month"))
    assert (then.year * 12 + then.month) - (today.year * 12 + today.month) == months
    assert then.day <= today.day


@given(
    st.integers(),
    st.sampled_from(["millisecond", "second", "minute", "hour", "day", "week", "month", "year"]),
)
def test_a_moment_is_in_range_or_refused(amount: int, unit: str) -> None:
    with suppress(Refused):
        assert moment(Now(amount, unit)).tzinfo is UTC


def test_variables_in_a_list_are_resolved_with_the_request_and_nobody_is_left_out() -> None:
    operand = Placeholder(Slot(0), lambda value: value, "x")
    literals = [("a", CallerKey(Caller.USER), CallerKey(Caller.ROLE))]
    assert bind_values([operand], Bindings(literals, user="u")) == [["a", "u"]]


@given(
    st.dictionaries(
        st.sampled_from(["fields", "filter", "sort", "limit", "deep", "alias", "groupBy", "meta"]),
        JSON,
    )
)
def test_any_json_is_a_query_or_refused_and_its_tree_can_be_a_key(
    params: dict[str, object],
) -> None:
    with suppress(Refused):
        parsed = parse(params, PageSizes())
        hash(parsed.query)
        assert repr(parsed.query) == repr(parse(params, PageSizes()).query)
