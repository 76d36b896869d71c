"""The order of rows that a query does not sort."""

from __future__ import annotations

from cms.query.plan.links import Link
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
        return (collection.key,)
    # Rows without a key may be equal in all of these; then nothing else could order them either.
    return tuple(field for field in collection.columns if Trait.SORTING in field.type.traits)
