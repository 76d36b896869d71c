"""Rules of permissions made usable: their names exist, and the types they compare fit."""

from __future__ import annotations

import logging
from collections.abc import Iterator

from cms.access.dependencies import TracedCatalogue
from cms.access.filter_guard import FilterGuard
from cms.access.guarded_rules import GuardedGrant, GuardedRule, with_rule
from cms.access.history_rules import HISTORY_COLLECTIONS, narrow_to_items
from cms.access.name_guard import NameGuard, ViewLookup
from cms.access.policy import Policy, SharedItem, StoredGrant
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

    The policy caches the views, so that its rules are guarded only once. The policy outlives a
    structure, so a cached view is used only if its dependencies are the same in the catalogue.
    """
    whole = catalogue.whole if isinstance(catalogue, TracedCatalogue) else catalogue

    def lookup(name: str) -> View | None:
        # The view of an administrator is made sooner than compared.
        if policy.is_admin:
            return _view(name, policy, catalogue, action)
        cached = policy.views.get((name, action))
        if cached is None or not cached.dependencies.hold_in(whole):
            cached = policy.views[name, action] = _cached_view(name, policy, whole, action)
        if isinstance(catalogue, TracedCatalogue):
            catalogue.dependencies.add(cached.dependencies)
        return cached.view

    return lookup


def _cached_view(name: str, policy: Policy, whole: Catalogue, action: str) -> CachedView:
    traced = TracedCatalogue(whole, policy)
    dependencies = traced.dependencies
    dependencies.grants[name, action] = policy.grants.get((name, action), ())
    # These depend on all grants; what a share shows depends on those of others as well.
    if policy.shared or name in HISTORY_COLLECTIONS:
        dependencies.lasting = False
    return CachedView(_view(name, policy, traced, action), dependencies)


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
