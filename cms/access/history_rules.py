"""Restricts the history to what the caller may read of the items (docs/history.md)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from cms.access.guarded_rules import UNRESTRICTED, GuardedRule, all_of, any_of, grouped_by_rule
from cms.access.views import View
from cms.query.plan.history_items import about_item
from cms.query.plan.read_plan import VisibleMembers
from cms.schema.model import Catalogue, Collection
from cms.schema.system import ACTIVITY, REVISIONS

HISTORY_COLLECTIONS = frozenset({ACTIVITY, REVISIONS})

_CONTENTS = ("data", "delta")


@dataclass(frozen=True, slots=True)
class _AboutItem:
    """The source of a rule on the history: the rule on the items of a collection."""

    collection: str
    source: object


def narrow_to_items(view: View, item_views: Iterable[View], catalogue: Catalogue) -> View:
    """Narrow the view of a history collection to items that the caller sees, and to their fields.

    The rules must hold for the item as it is now, and for the item as the revision holds it.
    """
    history = view.collection
    rules: list[GuardedRule] = []
    members: list[VisibleMembers] = []
    other_collections: list[str] = []
    for item_view in _with_readable_keys(item_views):
        items = item_view.collection
        rules.append(_history_rule(history, items, _rule(item_view), catalogue))
        members += _members(history, item_view, catalogue)
        other_collections.append(items.name)
    return replace(
        view,
        rule=all_of([view.rule, any_of(rules)]),
        members=_members_by_field(history, tuple(members)),
        other_collections=tuple(other_collections),
    )


def _with_readable_keys(views: Iterable[View]) -> Iterator[View]:
    """Yield the views whose callers may read the keys of items."""
    for view in views:
        names = view.collection.key_names
        # The history names items by their keys: it would show a key that is hidden elsewhere.
        if names and all(map(view.includes, names)):
            yield view


def _members_by_field(
    history: Collection, members: tuple[VisibleMembers, ...]
) -> dict[str, tuple[VisibleMembers, ...]]:
    """Return the visible members of the fields that hold items as they were.

    A revision holds whole items as JSON, so that fields are hidden as members of it.
    """
    members_by_field: dict[str, tuple[VisibleMembers, ...]] = {}
    for name in _CONTENTS:
        if name in history.fields:
            members_by_field[name] = members
    return members_by_field


def _history_rule(
    history: Collection, items: Collection, rule: GuardedRule, catalogue: Catalogue
) -> GuardedRule:
    """Return a rule on rows of the history: the item that they record must fulfil `rule`."""
    source = _AboutItem(items.name, rule.source)
    return GuardedRule(source, about_item(history, items, rule.predicate, catalogue))


def _rule(view: View) -> GuardedRule:
    """Return the rule of the items whose history is shown: it names their keys.

    So the caller must see the item, and be allowed to read its key.
    """
    masks = [view.mask(name) or UNRESTRICTED for name in view.collection.key_names]
    return all_of([view.rule, *masks])


def _members(history: Collection, view: View, catalogue: Catalogue) -> Iterator[VisibleMembers]:
    # One condition for all fields of one rule, instead of one for each field.
    for mask, names in grouped_by_rule(_masked_fields(view)):
        rule = _history_rule(history, view.collection, mask, catalogue)
        yield VisibleMembers(rule.predicate, tuple(names))


def _masked_fields(view: View) -> Iterator[tuple[GuardedRule, str]]:
    """Yield the fields that the history may show, each with the rule of rows that show it."""
    for name, field in view.collection.fields.items():
        # A field that is secret now may have been none when the revision was written, so old values
        # of it may be in there.
        if field.column and view.includes(name) and not field.is_secret:
            yield view.mask(name) or UNRESTRICTED, name
