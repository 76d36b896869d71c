"""Rules of permissions made usable: what they name exists, and what they compare fits (decisions, section 11)."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import replace

from cms.access.history_rules import HISTORY_COLLECTIONS, STRUCTURE_COLLECTIONS, narrow_to_items
from cms.access.policy import Grant, Policy
from cms.access.query_guard import QueryGuard, ViewLookup
from cms.access.views import View, unite_grants
from cms.errors import Refused
from cms.query.language.ast import Filter
from cms.query.plan.bindings import Bindings, bind_values
from cms.query.plan.plan import resolve_rule
from cms.query.sql.expressions import predicate
from cms.schema.model import Catalogue, Collection, Kind

log = logging.getLogger("cms.access")

MAX_RULE_DEPTH = 30

_SAMPLE_ID = "00000000-0000-4000-8000-000000000000"
_SAMPLE_BINDINGS = Bindings((), _SAMPLE_ID, _SAMPLE_ID)


def view_lookup(policy: Policy, catalogue: Catalogue, action: str = "read") -> ViewLookup:
    """Return what a caller sees of each collection for an action; rules are settled once for a policy."""

    def sight(name: str) -> View | None:
        place = name, action
        if policy.is_admin:
            return _view(name, policy, catalogue, action)
        if place not in policy.views:
            policy.views[place] = _view(name, policy, catalogue, action)
        found: View | None = policy.views[place]
        return found

    return sight


def _view(name: str, policy: Policy, catalogue: Catalogue, action: str) -> View | None:
    collection = catalogue.collections.get(name)
    if collection is None or collection.kind is Kind.FOLDER:
        return None
    if policy.is_admin:
        return View(collection)
    grants = usable_grants(policy.granted(name, action), collection, catalogue)
    if not grants:
        return None
    view = unite_grants(collection, grants)
    return (
        narrow_to_items(view, _history_views(policy, catalogue))
        if name in HISTORY_COLLECTIONS
        else view
    )


def _history_views(policy: Policy, catalogue: Catalogue) -> Iterator[View]:
    """Yield what a caller sees of each collection whose items have a history for others than administrators."""
    sight = view_lookup(policy, catalogue)
    for name, action in policy.grants:
        found = (
            sight(name)
            if action == "read" and name not in HISTORY_COLLECTIONS | STRUCTURE_COLLECTIONS
            else None
        )
        if found:
            yield found


def usable_grants(
    grants: tuple[Grant, ...], collection: Collection, catalogue: Catalogue
) -> tuple[Grant, ...]:
    """Return the grants whose rules can be applied, settled; one that cannot gives nothing, and the log says why."""
    found = []
    for grant in grants:
        try:
            found.append(replace(grant, rule=guarded_rule(grant.rule, collection, catalogue)))
        except Refused as refused:
            log.warning(
                "permission %s on %s gives nothing: %s",
                grant.id,
                collection.name,
                refused.problems[0].message,
            )
    return tuple(found)


def guarded_rule(rule: Filter, collection: Collection, catalogue: Catalogue) -> Filter:
    """Return a rule in the form that the planner takes; raises `Refused` INVALID_QUERY for one that cannot hold.

    A rule may name whatever there is: it is the administrator's, and not its caller's.
    """
    walker = QueryGuard(
        catalogue, lambda name: _whole_view(name, catalogue), explains=True, depth=MAX_RULE_DEPTH
    )
    found = walker.filter(rule, View(collection), 0)
    _, values = predicate(resolve_rule(found, collection, catalogue), 0).numbered()
    bind_values(values, _SAMPLE_BINDINGS)
    return found


def _whole_view(name: str, catalogue: Catalogue) -> View | None:
    collection = catalogue.collections.get(name)
    return View(collection) if collection and collection.kind is not Kind.FOLDER else None
