"""Pages with a cursor: the parameters `meta=next_cursor` and `page[after]`."""

from __future__ import annotations

from collections.abc import Mapping

from cms.errors import Refused, invalid_query
from cms.query.language.ast import CursorPage
from cms.query.language.literals import Literals
from cms.query.language.paging import PageSizes, parse_page_size
from cms.query.language.parameters import NEXT_CURSOR, Params, meta_names

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
