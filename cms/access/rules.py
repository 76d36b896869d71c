"""Rules of permissions made usable: what they name exists, and what they compare fits (decisions, section 11)."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import replace

from cms.access.names import Sight, Walker
from cms.access.past import HISTORY, STRUCTURE, narrowed
from cms.access.policy import Grant, Policy
from cms.access.views import View, view_of
from cms.errors import Refused
from cms.query.ast import Filter
from cms.query.bind import Context, bound
from cms.query.expressions import predicate
from cms.query.plan import resolved
from cms.schema.model import Catalogue, Collection, Kind

log = logging.getLogger("cms.access")

MAX_RULE_DEPTH = 30

_SOMEBODY = "00000000-0000-4000-8000-000000000000"
_TRIAL = Context((), _SOMEBODY, _SOMEBODY)


def sight_of(policy: Policy, catalogue: Catalogue, action: str = "read") -> Sight:
    """Return what a caller sees of each collection for an action; rules are settled once for a policy."""

    def sight(name: str) -> View | None:
        place = name, action
        if policy.admin:
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
    if policy.admin:
        return View(collection)
    grants = usable(policy.granted(name, action), collection, catalogue)
    if not grants:
        return None
    view = view_of(collection, grants)
    return narrowed(view, _items_of(policy, catalogue)) if name in HISTORY else view


def _items_of(policy: Policy, catalogue: Catalogue) -> Iterator[View]:
    """Yield what a caller sees of each collection whose items have a history for others than administrators."""
    sight = sight_of(policy, catalogue)
    for name, action in policy.grants:
        found = sight(name) if action == "read" and name not in HISTORY | STRUCTURE else None
        if found:
            yield found


def usable(grants: tuple[Grant, ...], collection: Collection, catalogue: Catalogue) -> tuple[Grant, ...]:
    """Return the grants whose rules can be applied, settled; one that cannot gives nothing, and the log says why."""
    found = []
    for grant in grants:
        try:
            found.append(replace(grant, rule=settled(grant.rule, collection, catalogue)))
        except Refused as refused:
            log.warning("permission %s on %s gives nothing: %s", grant.id, collection.name, refused.problems[0].message)
    return tuple(found)


def settled(rule: Filter, collection: Collection, catalogue: Catalogue) -> Filter:
    """Return a rule in the form that the planner takes; raises `Refused` INVALID_QUERY for one that cannot hold.

    A rule may name whatever there is: it is the administrator's, and not its caller's.
    """
    walker = Walker(catalogue, lambda name: _all_of(name, catalogue), told=True, depth=MAX_RULE_DEPTH)
    found = walker.filter(rule, View(collection), 0)
    _, values = predicate(resolved(found, collection, catalogue), 0).numbered()
    bound(values, _TRIAL)
    return found


def _all_of(name: str, catalogue: Catalogue) -> View | None:
    collection = catalogue.collections.get(name)
    return View(collection) if collection and collection.kind is not Kind.FOLDER else None
