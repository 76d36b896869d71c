"""The order of a query: without a `sort`, and where a page with a cursor begins in it."""

from __future__ import annotations

from hashlib import sha256

from cms.query.language.paging import AFTER, wrong_token
from cms.query.plan.bindings import Placeholder, unchanged
from cms.query.plan.guarded import GuardedQuery
from cms.query.plan.links import Link
from cms.query.plan.read_plan import Cursor, JsonPath, Order
from cms.schema.model import Collection, Field
from cms.schema.types.field_type import Trait


def default_sort(collection: Collection, link: Link | None = None) -> tuple[Field, ...]:
    """Return the sort field of the relation to the items, else of their collection, if any."""
    name = collection.sort_field
    if link and link.to_many:
        name = link.relation.order_field or name
    field = collection.fields.get(name) if name else None
    # The order of rows would reveal which of two secrets is the larger one.
    if field is None or field.is_secret or Trait.SORTING not in field.type.traits:
        return ()
    return (field,)


def tie_breakers(collection: Collection) -> tuple[Field, ...]:
    """Return the fields that make any order total: the primary key, or all sortable columns."""
    if collection.primary_key:
        return collection.key.key_fields
    # Rows without a key may be equal in all of these; then nothing else could order them either.
    return tuple(field for field in collection.columns if Trait.SORTING in field.type.traits)


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
    # Where the last item of the page before has null, there is nothing to compare with.
    starts = (
        None if slot is None else Placeholder(slot, unchanged, AFTER) for slot in page.start.values
    )
    return Cursor(page.size, tuple(starts), terms, digest)


def _digest(terms: tuple[Order, ...]) -> str:
    """Return a digest that two orders share only if the values of their terms mean the same."""
    return sha256("\n".join(map(_term_name, terms)).encode()).hexdigest()


def _term_name(term: Order) -> str:
    value = term.value
    parts: list[str] = []
    for step in term.path:
        link = step.link
        parts.append(f"{link.target}.{link.far.name}={link.near.name}")
    parts.append(f"{value.field.collection}.{value.field.name}:{value.cast}")
    if value.function is not None:
        parts.append(value.function.sql)
    if isinstance(value.at, JsonPath):
        parts.append(repr(value.at.steps))
    if value.step is not None:
        parts.append(f"count {value.step.link.target}.{value.step.link.far.name}")
    parts.append("descending" if term.descending else "ascending")
    return " ".join(parts)
