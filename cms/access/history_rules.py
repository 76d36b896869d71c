"""What the history shows of items: as much as their own collections do (decisions, sections 8 and 11)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from cms.access.views import View
from cms.query.language.ast import EVERYTHING, AboutItem, Filter, JsonMembers, Or, both

HISTORY_COLLECTIONS = frozenset({"system_activity", "system_revisions"})
STRUCTURE_COLLECTIONS = frozenset({"system_collections", "system_fields", "system_relations"})
"""Collections whose history only administrators see: they alone change what is in them."""

_CONTENTS = ("data", "delta")


def narrow_to_items(view: View, seen: Iterable[View]) -> View:
    """Return the view of a collection of the history: of the items in `seen`, and of each the fields that are there.

    An item counts as it is now, and as the revision holds it.
    """
    told = [
        found
        for found in seen
        if found.collection.primary_key and found.sees(found.collection.primary_key)
    ]
    rule = Or(tuple(AboutItem(found.collection.name, _rule(found)) for found in told))
    members = tuple(part for found in told for part in _members(found))
    contents = {name: members for name in _CONTENTS if name in view.collection.fields}
    other_collections = tuple(found.collection.name for found in told)
    return replace(
        view, rule=both(view.rule, rule), members=contents, other_collections=other_collections
    )


def _rule(view: View) -> Filter:
    """A row of the history names the key of its item, and so is there where the key is."""
    return both(view.rule, view.mask(str(view.collection.primary_key)))


def _members(view: View) -> Iterator[JsonMembers]:
    by_mask: dict[Filter, list[str]] = {}
    for name, found in view.collection.fields.items():
        if (
            found.column and view.sees(name) and not found.is_secret
        ):  # it may have been none when the revision was made
            by_mask.setdefault(view.mask(name) or EVERYTHING, []).append(name)
    for mask, names in by_mask.items():
        yield JsonMembers(AboutItem(view.collection.name, mask), tuple(names))
