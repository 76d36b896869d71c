"""The history shows as much of items as their own collections do (docs/permissions.md)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from cms.access.views import View
from cms.query.language.ast import EVERYTHING, AboutItem, Filter, JsonMembers, Or, both

HISTORY_COLLECTIONS = frozenset({"system_activity", "system_revisions"})
STRUCTURE_COLLECTIONS = frozenset({"system_collections", "system_fields", "system_relations"})
"""Collections whose history only administrators see, because only they change the items."""

_CONTENTS = ("data", "delta")


def narrow_to_items(view: View, item_views: Iterable[View]) -> View:
    """Narrow the view of a history collection to items that the caller sees, and to their fields.

    The rules must hold for the item as it is now, and for the item as the revision holds it.
    """
    keyed = [
        item_view
        for item_view in item_views
        if item_view.collection.primary_key and item_view.sees(item_view.collection.primary_key)
    ]
    rule = Or(tuple(AboutItem(seen.collection.name, _rule(seen)) for seen in keyed))
    members = tuple(part for seen in keyed for part in _members(seen))
    contents = {name: members for name in _CONTENTS if name in view.collection.fields}
    other_collections = tuple(seen.collection.name for seen in keyed)
    return replace(
        view, rule=both(view.rule, rule), members=contents, other_collections=other_collections
    )


def _rule(view: View) -> Filter:
    """A row of the history names the key of its item, so it is shown where the key may be read."""
    return both(view.rule, view.mask(str(view.collection.primary_key)))


def _members(view: View) -> Iterator[JsonMembers]:
    by_mask: dict[Filter, list[str]] = {}
    for name, field in view.collection.fields.items():
        # A field that is secret now may have been none when the revision was written, so old values
        # of it may be in there.
        if field.column and view.sees(name) and not field.is_secret:
            by_mask.setdefault(view.mask(name) or EVERYTHING, []).append(name)
    for mask, names in by_mask.items():
        yield JsonMembers(AboutItem(view.collection.name, mask), tuple(names))
