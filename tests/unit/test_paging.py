"""Pages of a read: whatever the statement's round row limit is, the rows are those of the page."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cms.errors import Refused
from cms.query.language.ast import Slot, Window
from cms.query.language.literals import Literals
from cms.query.language.paging import PageSizes, parse_window

ROWS = list(range(300))

NUMBERS = st.integers(min_value=1, max_value=400)
SIZES = st.builds(PageSizes, st.none() | NUMBERS, st.none() | NUMBERS)


def rows_of(window: Window | None, literals: Literals) -> list[int]:
    """Return the rows that a statement with this window has, in the way of PostgreSQL."""
    if window is None:
        return ROWS
    rows = ROWS[: window.row_limit]
    if window.offset is not None:
        rows = rows[number_of(window.offset, literals) :]
    if window.limit is not None:
        rows = rows[: number_of(window.limit, literals)]
    return rows[: window.page_limit]


def number_of(slot: Slot, literals: Literals) -> int | None:
    """Return the number in a slot; a limit of NULL is none."""
    number = literals.values[slot.index]
    assert number is None or isinstance(number, int)
    return number


@given(SIZES, st.none() | st.integers(-1, 400), st.integers(0, 400))
def test_a_window_has_the_rows_of_its_page(
    sizes: PageSizes, limit: int | None, offset: int
) -> None:
    literals = Literals()
    window = parse_window({"limit": limit, "offset": offset}, sizes, literals)
    requested = sizes.default if limit is None else limit
    bounds = [size for size in (requested, sizes.maximum) if size is not None and size >= 0]
    size = min(bounds, default=len(ROWS))
    assert rows_of(window, literals) == ROWS[offset : offset + size]


def test_pages_follow_each_other_without_a_gap() -> None:
    rows: list[int] = []
    for page in range(1, 9):
        literals = Literals()
        window = parse_window({"limit": "40", "page": str(page)}, PageSizes(), literals)
        rows += rows_of(window, literals)
    assert rows == ROWS


def test_all_rows_are_one_page() -> None:
    literals = Literals()
    window = parse_window({"limit": -1, "page": 2}, PageSizes(), literals)
    assert rows_of(window, literals) == []


def test_near_pages_share_the_text_of_their_statement() -> None:
    windows = [
        parse_window({"limit": limit, "offset": 1}, PageSizes(), Literals())
        for limit in range(100, 199)
    ]
    assert len(set(windows)) == 1


def test_a_page_that_is_small_beside_what_it_skips_has_a_limit_of_its_own() -> None:
    def page_limit(page: int) -> int | None:
        window = parse_window({"limit": 23, "page": page}, PageSizes(), Literals())
        assert window
        return window.page_limit

    assert page_limit(2) is None
    assert page_limit(40) == 25


@pytest.mark.parametrize("size", range(1, 100))
def test_the_limit_of_a_page_cuts_nothing_off_it(size: int) -> None:
    window = parse_window({"limit": size, "offset": 10_000}, PageSizes(), Literals())
    assert window
    assert window.page_limit
    assert window.page_limit >= size


@pytest.mark.parametrize(
    ("parameter", "value"),
    [("limit", -2), ("offset", -1), ("page", -1), ("page", True), ("limit", "1.5")],
)
def test_a_number_that_no_page_has_is_refused_by_its_name(parameter: str, value: object) -> None:
    with pytest.raises(Refused) as refused:
        parse_window({parameter: value}, PageSizes(), Literals())
    assert refused.value.problems[0].extensions["parameter"] == parameter
