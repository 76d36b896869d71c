"""Which types have an order, and the order of rows that a query does not sort."""

from __future__ import annotations

from cms.query.language.ast import FieldName
from cms.query.plan.links import Link
from cms.schema.model import Collection
from cms.schema.types import Family

COMPARABLE = frozenset({Family.NUMBER, Family.MOMENT, Family.TEXT})
"""Types that have a smallest and a largest value."""
GROUPABLE = COMPARABLE | {Family.BOOLEAN, Family.UUID, Family.CSV}
"""Types to sort and to group by: PostgreSQL has an order for their values."""


def default_sort(collection: Collection, link: Link | None = None) -> tuple[FieldName, ...]:
    """Return the sort field of the relation to the items, else of their collection, if any."""
    name = collection.sort_field
    if link and link.to_many:
        name = link.relation.order or name
    field = collection.fields.get(name) if name else None
    if field is None or field.is_secret or field.type.family not in GROUPABLE:
        return ()
    return (FieldName(field.name),)


def tie_breakers(collection: Collection) -> tuple[FieldName, ...]:
    """Return the fields that make any order total: the primary key, or all sortable columns."""
    if collection.primary_key:
        return (FieldName(collection.primary_key),)
    return tuple(
        FieldName(field.name) for field in collection.columns if field.type.family in GROUPABLE
    )
