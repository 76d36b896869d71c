"""Parts of queries rewritten for their guard: picks merged, filters taken apart."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from cms.errors import invalid_query
from cms.query.language.ast import (
    HIGHLIGHTS,
    And,
    AtField,
    Filter,
    Or,
    Pick,
    Query,
    Star,
    has_quantifier,
)
from cms.schema.names import FieldName


def with_star_fields(pick: Pick, star: Star) -> Pick:
    """Return a pick with the fields of the second star of `*.*`, beside those it names."""
    # An alias or a function is a pick of its own, which stars do not add to.
    if star.nested is None or pick.key != pick.name.field:
        return pick
    return replace(pick, nested=merged_queries(pick.nested, star.nested))


def merged_queries(query: Query | None, other: Query | None) -> Query | None:
    """Return a query of what either picks; page, order and filter are the first one's, if any."""
    if query is None or other is None:
        return query or other
    # Groups show no fields, so there is nothing to be added to.
    if query.aggregates or query.groups:
        return query
    return replace(query, picks=(*other.picks, *query.picks))


def refuse_duplicate_keys(picks: Iterable[Pick]) -> None:
    """Raise `Refused` INVALID_QUERY where one key would hold two fields.

    The targets of a many-to-any field share the key: each row shows one of them.
    """
    names: dict[str, tuple[str, str | None]] = {}
    for pick in picks:
        name = pick.name.field, pick.name.function
        if names.setdefault(pick.key, name) != name:
            raise invalid_query(f'Two fields would both be called "{pick.key}"', parameter="fields")


def refuse_key_of_highlights(picks: Iterable[Pick]) -> None:
    """Raise `Refused` INVALID_QUERY where a field has the key under which highlights stand."""
    if any(pick.key == HIGHLIGHTS for pick in picks):
        raise invalid_query(
            f'A field and the highlights would both be called "{HIGHLIGHTS}"', parameter="highlight"
        )


def distributed_over_items(name: FieldName, inner: And[Filter] | Or[Filter]) -> Filter:
    """Give each test of a group at a to-one relation the name for itself.

    Tests of the key and tests of the item are planned differently; as there is at most one item, it
    makes no difference that they stand alone.
    """
    return replace(inner, items=tuple(AtField(name, item) for item in inner.items))


def quantifiers_alone(name: FieldName, inner: And[Filter] | Or[Filter]) -> Filter:
    """Let each `_some` and `_none` stand alone; all other tests are of one and the same item."""
    parts: list[Filter] = []
    others: list[Filter] = []
    for item in inner.items:
        if has_quantifier(item):
            parts.append(AtField(name, item))
        else:
            others.append(item)
    # Tests of one item must not be separated: two items could each pass one of them.
    if others:
        parts.append(AtField(name, replace(inner, items=tuple(others))))
    return replace(inner, items=tuple(parts))
