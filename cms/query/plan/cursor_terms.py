"""The start of a page with a cursor, and the content of the cursor of the next page."""

from __future__ import annotations

from hashlib import sha256

from cms.query.language.ast import CursorStart
from cms.query.language.cursor_parameters import AFTER, wrong_token
from cms.query.plan.bindings import Placeholder, unchanged
from cms.query.plan.document_paths import JsonPath
from cms.query.plan.guarded import GuardedQuery
from cms.query.plan.read_plan import Cursor, Order


def cursor_of(query: GuardedQuery, order: tuple[Order, ...]) -> Cursor | None:
    """Return the cursor of a query, None where it asks for none.

    Raises `Refused` INVALID_QUERY for a token of another order.
    """
    page = query.cursor
    if page is None:
        return None
    assert page.token is None, "a token that nobody has opened"
    terms = order if query.collection.primary_key else ()
    digest = _digest(terms)
    if page.start is None:
        return Cursor(page.size, (), terms, digest)
    if page.start.order != digest:
        raise wrong_token()
    return Cursor(page.size, _placeholders(page.start), terms, digest)


def _placeholders(start: CursorStart) -> tuple[Placeholder | None, ...]:
    placeholders: list[Placeholder | None] = []
    for slot in start.values:
        # Where the last item of the page before has null, there is nothing to compare with.
        if slot is None:
            placeholders.append(None)
        else:
            placeholders.append(Placeholder(slot, unchanged, AFTER))
    return tuple(placeholders)


def _digest(terms: tuple[Order, ...]) -> str:
    """Return a digest that two orders share only if the values of their terms mean the same."""
    return sha256("\n".join(map(_term_name, terms)).encode()).hexdigest()


def _term_name(term: Order) -> str:
    value = term.value
    parts: list[str] = []
    for step in term.path:
        link = step.link
        parts.append(f"{link.target}.{link.far}={link.near}")
    parts.append(f"{value.field.collection}.{value.field.name}:{value.cast}")
    if value.function is not None:
        parts.append(value.function.sql)
    if isinstance(value.at, JsonPath):
        parts.append(repr(value.at.steps))
    if value.step is not None:
        parts.append(f"count {value.step.link.target}.{value.step.link.far}")
    parts.append("descending" if term.descending else "ascending")
    return " ".join(parts)
