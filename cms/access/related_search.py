"""The values that a search looks at: fields, and items of relations with `meta.searchable`."""

from __future__ import annotations

from collections.abc import Iterator

from cms.access.name_guard import NameGuard
from cms.access.views import View
from cms.query.plan.guarded import GuardedValue, RelatedSearch
from cms.query.plan.links import Link
from cms.schema.names import FieldName


def search_values(names: NameGuard, view: View) -> tuple[GuardedValue, ...]:
    """Return the values of the fields of a view that a search of this caller looks into."""
    values: list[GuardedValue] = []
    for field in view.collection.columns:
        if field.is_searchable and view.includes(field.name):
            values.append(names.value(field, view))
    return tuple(values)


def related_searches(names: NameGuard, view: View, level: int) -> tuple[RelatedSearch, ...]:
    """Return the related values that a search looks at, beyond one relation of the view.

    The query does not name these relations, so those that the caller may not follow are left out.
    """
    if level >= names.depth:
        return ()
    searches = []
    for name, link in _links(names, view):
        target = names.view(link.target)
        values = search_values(names, target)
        if values:
            step = names.step(name, link, view, target)
            searches.append(RelatedSearch(step, values, _is_indexed(link, view)))
    return tuple(searches)


def _links(names: NameGuard, view: View) -> Iterator[tuple[FieldName, Link]]:
    for field in view.collection.fields.values():
        if not field.searches_related or not view.includes(field.name):
            continue
        name = FieldName(field.name)
        link = names.link(name, view)
        if link is not None and names.may_follow(link, view):
            yield name, link
        for any_link in names.any_links(field.name, view):
            if names.may_follow(any_link, view):
                yield name, any_link


def _is_indexed(link: Link, view: View) -> bool:
    """Tell whether an index finds the rows of the view by their side of the link."""
    near = link.near.column
    if link.collection_field is not None or near is None:
        return False
    return near.is_indexed or near.is_unique
