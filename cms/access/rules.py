"""Rules of permissions made usable: their names exist, and the types they compare fit."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import cast

from cms.access.filter_guard import FilterGuard
from cms.access.guarded_rules import GuardedGrant, GuardedRule, with_rule
from cms.access.history_rules import HISTORY_COLLECTIONS, narrow_to_items
from cms.access.name_guard import NameGuard, ViewLookup
from cms.access.policy import Policy, SharedItem, StoredGrant
from cms.access.recorded_lookups import RecordingCatalogue
from cms.access.shares import ShareRules, for_nobody
from cms.access.views import CachedView, View, unite_grants
from cms.errors import Refused
from cms.query.language.ast import Filter
from cms.query.plan.bindings import Bindings, bind_values
from cms.query.plan.conditions import predicate_of
from cms.query.sql.expressions import predicate
from cms.schema.model import Catalogue, Collection, Kind
from cms.schema.system import SETTINGS, STRUCTURE_COLLECTIONS

log = logging.getLogger("cms.access")

# Levels of relations; rules of administrators may go deeper than queries of clients.
MAX_RULE_DEPTH = 30

# Rules are bound to sample values once, so that operands of a wrong type are found before any
# request.
_SAMPLE_ID = "00000000-0000-4000-8000-000000000000"
_SAMPLE_BINDINGS = Bindings((), _SAMPLE_ID, _SAMPLE_ID)


def view_lookup(policy: Policy, catalogue: Catalogue, action: str = "read") -> ViewLookup:
    """Return a lookup of what a caller sees of each collection for an action.

    The catalogue caches the views, so that the rules of a policy are guarded only once.
    """
    recording = catalogue if isinstance(catalogue, RecordingCatalogue) else None
    whole = recording.whole if recording else catalogue

    def lookup(name: str) -> View | None:
        # The view of an administrator is made sooner than looked up. Names of no collection come
        # from requests, and must not fill the cache.
        if policy.is_admin or catalogue.collections.get(name) is None:
            return _view(name, policy, catalogue, action)
        key = policy, name, action
        # The library's types forget that there may be none.
        cached = cast("CachedView | None", whole.views.get(key))
        if cached is None:
            cached = whole.views[key] = _cached_view(name, policy, whole, action)
        if recording:
            recording.names.update(cached.looked_up)
        return cached.view

    return lookup


def _cached_view(name: str, policy: Policy, whole: Catalogue, action: str) -> CachedView:
    catalogue = RecordingCatalogue(whole)
    return CachedView(_view(name, policy, catalogue, action), catalogue.names)


def _view(name: str, policy: Policy, catalogue: Catalogue, action: str) -> View | None:
    collection = catalogue.collections.get(name)
    if collection is None or collection.kind is Kind.FOLDER:
        return None
    if policy.is_admin:
        return View(collection)  # without masks: every field, in every row
    grants = usable_grants(policy.granted(name, action), collection, catalogue)
    # Everybody may read the public part of the settings, which no item is related to.
    if policy.shared and name != SETTINGS:
        within_share = _share_rules(policy.shared, catalogue).grants(collection, grants)
        public = usable_grants(policy.shared.public.granted(name, action), collection, catalogue)
        grants = (*within_share, *map(for_nobody, public))
    if not grants:
        return None
    view = unite_grants(collection, grants)
    if name in HISTORY_COLLECTIONS:
        return narrow_to_items(view, _history_views(policy, catalogue), catalogue)
    return view


def _history_views(policy: Policy, catalogue: Catalogue) -> Iterator[View]:
    """Yield the caller's view of each collection whose history is not for administrators only."""
    lookup = view_lookup(policy, catalogue)
    for name, action in policy.grants:
        # Rules of the history itself would lead back to themselves.
        if action != "read" or name in HISTORY_COLLECTIONS | STRUCTURE_COLLECTIONS:
            continue
        view = lookup(name)
        if view:
            yield view


def _share_rules(item: SharedItem, catalogue: Catalogue) -> ShareRules:
    return ShareRules(
        item,
        catalogue,
        of_role=view_lookup(item.role, catalogue),
        of_creator=view_lookup(item.creator, catalogue),
        shared_by_creator=view_lookup(item.creator, catalogue, "share"),
    )


def usable_grants(
    grants: tuple[StoredGrant, ...], collection: Collection, catalogue: Catalogue
) -> tuple[GuardedGrant, ...]:
    """Return the grants with guarded rules.

    A grant whose rule cannot be applied is left out, and the log says why.
    """
    usable = []
    for grant in grants:
        try:
            rule = guarded_rule(grant.rule, collection, catalogue)
            usable.append(with_rule(grant, rule, collection, catalogue))
        except Refused as refused:
            log.warning(
                "permission %s on %s gives nothing: %s",
                grant.id,
                collection.name,
                refused.problems[0].message,
            )
    return tuple(usable)


def guarded_rule(rule: Filter, collection: Collection, catalogue: Catalogue) -> GuardedRule:
    """Return a rule as a predicate that can be printed.

    Raises `Refused` INVALID_QUERY for a rule that can never be applied. A rule may name whatever
    exists: an administrator has written it, and not its caller.
    """
    # A rule sees everything: it must be able to test fields that its caller cannot read.
    names = NameGuard(
        catalogue, lambda name: _whole_view(name, catalogue), explains=True, depth=MAX_RULE_DEPTH
    )
    condition = predicate_of(FilterGuard(names).filter(rule, View(collection), 0))
    # Printed and bound for the refusal only: an operand of a wrong type, such as a text for a
    # number, is known now and not with the first request.
    _, values = predicate(condition, 0).numbered()
    bind_values(values, _SAMPLE_BINDINGS)
    return GuardedRule(rule, condition)


def _whole_view(name: str, catalogue: Catalogue) -> View | None:
    collection = catalogue.collections.get(name)
    if collection is None or collection.kind is Kind.FOLDER:
        return None
    return View(collection)
