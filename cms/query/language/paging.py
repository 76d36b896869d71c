"""The page of a read: a window of rows by `limit`, `offset` and `page`, or a cursor."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from cms.errors import Refused, invalid_query
from cms.query.language import limits
from cms.query.language.ast import CursorPage, Window
from cms.query.language.literals import Literals
from cms.query.language.parameters import NEXT_CURSOR, Params, integer_of, meta_names


def _round_numbers() -> Iterator[int]:
    """Yield 1, 2, 5, 10, 20, 25, 50, 100, 200, 250, 500, 1000 …"""
    yield from (1, 2, 5)
    power = 1
    for _ in range(9):
        for digits in (10, 20, 25, 50):
            yield digits * power
        power *= 10


_ROW_LIMITS = tuple(_round_numbers())
"""The row limits that statements are printed with: few, so that requests share statements.

A limit of 37 is printed as LIMIT 50, and cut to 37 by a parameter.
"""

_GUESSED_PART = 10
"""PostgreSQL takes a page of unknown limit for a tenth of the rows that it is cut from."""

WINDOW_MINIMUMS = {"limit": -1, "offset": 0, "page": 0}
"""The parameters of a page, each with the minimum that it takes."""


@dataclass(frozen=True, slots=True)
class PageSizes:
    """How many rows come without a `limit`, and how many at most; None is all of them."""

    default: int | None = 100
    maximum: int | None = None

    @property
    def default_window(self) -> Window | None:
        """The window of a request without a `limit`; None is all rows.

        Its number comes from the settings and not from a client, so it may stand in the statement.
        """
        size = self.size_of(self.default)
        if size is None:
            return None
        return Window(size)

    @property
    def of_one_item(self) -> PageSizes:
        """The sizes of the lists in a single item: they come whole, up to the maximum."""
        return replace(self, default=None)

    def size_of(self, size: int | None) -> int | None:
        """Return a size within the maximum."""
        if size is None:
            return self.maximum
        if self.maximum is None:
            return size
        return min(size, self.maximum)


def parse_window(params: Params, page: PageSizes, literals: Literals) -> Window | None:
    """Return the window of the parameters of a page, None for all rows.

    The row limit of the statement is a round number that covers the page; the exact limit and the
    offset are literals.
    """
    size = parse_page_size(params, page)
    offset = integer_of(params, "offset", minimum=WINDOW_MINIMUMS["offset"])
    number = integer_of(params, "page", minimum=WINDOW_MINIMUMS["page"])
    # `offset` wins over `page`, and the page 0 is the first one, like 1.
    if offset is None:
        offset = _page_offset(number or 1, size)
    if offset > limits.MAX_OFFSET:
        raise invalid_query("The page is out of range", parameter="page")
    start = literals.slot(offset) if offset else None
    # The size of the settings may be any number: it is the same in every request.
    if not offset and page.default_window == Window(size):
        row_limit = size
    else:
        row_limit = _row_limit(size, offset)
    if row_limit != size or start is not None:
        page_limit = _page_limit(size, row_limit)
        return Window(row_limit, literals.slot(size), start, page_limit=page_limit)
    # Such a page needs no parameter: the statement itself ends with it.
    if not row_limit:
        return None
    return Window(row_limit)


def parse_page_size(params: Params, page: PageSizes) -> int | None:
    """Return the number of rows of a page; None is all rows, which a client asks for with -1."""
    limit = integer_of(params, "limit", minimum=WINDOW_MINIMUMS["limit"])
    if limit is None:
        return page.size_of(page.default)
    if limit == -1:
        return page.size_of(None)
    return page.size_of(limit)


def _row_limit(size: int | None, offset: int) -> int | None:
    """Return the first round number that is not below the end of the page; None for all rows."""
    if size is None:
        return None
    end = size + offset
    for row_limit in _ROW_LIMITS:
        if row_limit >= end:
            return row_limit
    # Past the largest number a page has no limit in the text, only the parameter.
    return None


def _page_limit(size: int | None, row_limit: int | None) -> int | None:
    """Return a round number for the page alone, None where PostgreSQL's guess is not above it.

    With a guess far above it a plan for any page seems to cost more than planning each anew.
    """
    page_limit = _row_limit(size, 0)
    if page_limit and row_limit and page_limit * _GUESSED_PART < row_limit:
        return page_limit
    return None


def _page_offset(page: int, size: int | None) -> int:
    """Return where a page starts; all rows are one page, and there is nothing on the next."""
    if size is not None:
        return (page - 1) * size
    if page == 1:
        return 0
    return limits.MAX_OFFSET


# Pages with a cursor: the parameters `meta=next_cursor` and `page[after]`


AFTER = "page[after]"
_CONFLICTING_PARAMETERS = ("offset", "aggregate", "groupBy", "group")


def parse_cursor(
    params: Params, page: PageSizes, literals: Literals, *, is_grouped: bool
) -> CursorPage | None:
    """Return the page that the parameters ask for, None for one without a cursor.

    A page behind another has a cursor without being asked. Groups have none.
    """
    token = _token_of(params)
    if token is None and not _asks_for_cursor(params):
        return None
    if token is None and is_grouped:
        return None
    size_slot = None
    token_slot = None
    size = parse_page_size(params, page)
    if size is not None:
        size_slot = literals.slot(size)
    if token is not None:
        token_slot = literals.slot(token)
    return CursorPage(size_slot, token_slot)


def refuse_token(params: Params) -> None:
    """Raise `Refused` INVALID_QUERY for a token where no page has one."""
    if _token_of(params) is not None:
        raise invalid_query(f"Only a list itself takes {AFTER}", parameter=AFTER)


def without_cursor(params: Params) -> Params:
    """Return the parameters without a `page` that is a cursor: for those who count pages."""
    if not isinstance(params.get("page"), Mapping):
        return params
    return {name: value for name, value in params.items() if name != "page"}


def _asks_for_cursor(params: Params) -> bool:
    names = meta_names(params)
    return NEXT_CURSOR in names or "*" in names


def _token_of(params: Params) -> str | None:
    """Return the token of `page[after]`, None if it is not sent."""
    page = params.get("page")
    if not isinstance(page, Mapping):
        return None
    token = page.get("after")
    if set(page) != {"after"} or not isinstance(token, str) or not token:
        raise invalid_query(f"{AFTER} takes meta.next_cursor of the page before", parameter=AFTER)
    for name in _CONFLICTING_PARAMETERS:
        if params.get(name) not in (None, ""):
            raise invalid_query(f"{AFTER} cannot be sent with {name}", parameter=AFTER)
    return token


def wrong_token() -> Refused:
    """Return the refusal of a token that is damaged, or of another query or caller."""
    return invalid_query(
        f"{AFTER} takes meta.next_cursor of the page before, sent by the same caller with the same "
        "sort, filter and search",
        parameter=AFTER,
    )
