"""What the guard of queries makes of parts of them: picks merged, masks found, filters taken apart."""

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
    """Tell whether the store itself asks: a client's pick of such a key would be of a field of that name."""
    return (
        pick.key in (INTERNAL_KEY, INTERNAL_VERSION)
        and pick.name.field == view.collection.primary_key
    )


def far_mask(link: Link | None, target: View) -> Filter | None:
    """The column that points back from a to-many's items is read, too."""
    return target.mask(link.far) if link and link.to_many else None


def searched_fields(view: View) -> list[Field]:
    return [found for found in view.collection.columns if found.searched and view.sees(found.name)]


def with_star_fields(pick: Pick, star: Pick) -> Pick:
    """Let a field show what the second star of `*.*` asks of it, besides what is asked of it by name."""
    if star.nested is None or pick.key != pick.name.base_field:
        return pick
    return merged_picks(pick, replace(pick, nested=star.nested))


def merged_picks(one: Pick, other: Pick) -> Pick:
    """Ask for what either asks for; the page, order and filter are the first one's where it has any."""
    if one.nested is None or other.nested is None:
        return replace(one, nested=one.nested or other.nested)
    if one.nested.aggregates or one.nested.groups:
        return one
    return replace(one, nested=replace(one.nested, picks=(*other.nested.picks, *one.nested.picks)))


def refuse_duplicate_keys(picks: Iterable[Pick]) -> None:
    """One key holds one field, or what the collections behind a many-to-any field show of it."""
    meant: dict[str, FieldName] = {}
    for pick in picks:
        name = replace(pick.name, field=pick.name.base_field)
        if meant.setdefault(pick.key, name) != name:
            raise invalid_query(f'Two fields would both be called "{pick.key}"', parameter="fields")


def distributed_over_items(name: FieldName, inner: And | Or) -> Filter:
    """Split what is said of a to-one's key from what is said of the item beyond: at most one item makes them one."""
    return replace(inner, items=tuple(AtField(name, item) for item in inner.items))


def quantifiers_alone(name: FieldName, inner: And | Or) -> Filter:
    """Let each `_some` and `_none` stand alone; what is said beside them is meant of one and the same item."""
    alone = tuple(AtField(name, item) for item in inner.items if has_quantifier(item))
    others = tuple(item for item in inner.items if not has_quantifier(item))
    return replace(
        inner, items=(*alone, AtField(name, replace(inner, items=others))) if others else alone
    )
