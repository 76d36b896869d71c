"""Parts of queries rewritten for their guard: picks merged, masks found, filters taken apart."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from cms.access.views import View
from cms.errors import invalid_query
from cms.query.language.ast import (
    INTERNAL_KEY,
    INTERNAL_VERSION,
    And,
    AtField,
    FieldName,
    Filter,
    Or,
    Pick,
)
from cms.query.plan.links import Link, has_quantifier
from cms.schema.model import Field


def is_internal(pick: Pick, view: View) -> bool:
    """Tell whether the store itself asks: a client's pick of such a key is of a field so named."""
    if pick.key not in (INTERNAL_KEY, INTERNAL_VERSION):
        return False
    return pick.name.field == view.collection.primary_key


def back_reference_mask(link: Link | None, target: View) -> Filter | None:
    """Return the mask of the column by which a to-many's items point back: it is read, too."""
    return target.mask(link.far) if link and link.to_many else None


def search_fields(view: View) -> list[Field]:
    """Return the fields that a search of this caller looks into."""
    return [
        field for field in view.collection.columns if field.is_searchable and view.sees(field.name)
    ]


def with_star_fields(pick: Pick, star: Pick) -> Pick:
    """Return a pick with the fields of the second star of `*.*`, beside those it names."""
    if star.nested is None or pick.key != pick.name.base_field:
        return pick
    return merged_picks(pick, replace(pick, nested=star.nested))


def merged_picks(pick: Pick, other: Pick) -> Pick:
    """Return a pick of what either asks for; page, order and filter are the first one's, if any."""
    if pick.nested is None or other.nested is None:
        return replace(pick, nested=pick.nested or other.nested)
    if pick.nested.aggregates or pick.nested.groups:
        return pick
    picks = (*other.nested.picks, *pick.nested.picks)
    return replace(pick, nested=replace(pick.nested, picks=picks))


def refuse_duplicate_keys(picks: Iterable[Pick]) -> None:
    """Raise `Refused` INVALID_QUERY where one key would hold two fields.

    The targets of a many-to-any field share the key: each row shows one of them.
    """
    names: dict[str, FieldName] = {}
    for pick in picks:
        name = replace(pick.name, field=pick.name.base_field)
        if names.setdefault(pick.key, name) != name:
            raise invalid_query(f'Two fields would both be called "{pick.key}"', parameter="fields")


def distributed_over_items(name: FieldName, inner: And | Or) -> Filter:
    """Give each test of a group at a to-one relation the name for itself.

    Tests of the key and tests of the item are planned differently; as there is at most one item, it
    makes no difference that they stand alone.
    """
    return replace(inner, items=tuple(AtField(name, item) for item in inner.items))


def quantifiers_alone(name: FieldName, inner: And | Or) -> Filter:
    """Let each `_some` and `_none` stand alone; all other tests are of one and the same item."""
    quantified = tuple(AtField(name, item) for item in inner.items if has_quantifier(item))
    others = tuple(item for item in inner.items if not has_quantifier(item))
    if not others:
        return replace(inner, items=quantified)
    return replace(inner, items=(*quantified, AtField(name, replace(inner, items=others))))
