"""What a caller may do with each collection, as /permissions/me tells it (docs/permissions.md)."""

from __future__ import annotations

from collections.abc import Iterable

from cms.access.guard import untriggered
from cms.access.guarded_rules import FULL_GUARDED_GRANT, UNRESTRICTED, GuardedGrant
from cms.access.policy import ALL_FIELDS, Grant, Policy
from cms.access.rules import usable_grants, view_lookup
from cms.access.visible_structure import ACTIONS, has_permission_on
from cms.schema.model import WRITE_ACTIONS, Catalogue, Collection, Kind

Ability = dict[str, object]


def abilities(policy: Policy, catalogue: Catalogue) -> dict[str, dict[str, Ability]]:
    """Return what the caller may do, by collection and action.

    Collections without any permission are left out.
    """
    by_collection: dict[str, dict[str, Ability]] = {}
    for name, collection in catalogue.collections.items():
        if has_permission_on(policy, name):
            by_action: dict[str, Ability] = {}
            for action in ACTIONS:
                by_action[action] = ability(effective_grants(policy, collection, action, catalogue))
            by_collection[name] = by_action
    return by_collection


def effective_grants(
    policy: Policy, collection: Collection, action: str, catalogue: Catalogue
) -> tuple[GuardedGrant, ...]:
    """Return the grants of a caller for a collection whose rules can be applied."""
    # Only triggers of a view can write its rows.
    if action in WRITE_ACTIONS and untriggered(collection, action):
        return ()
    # Not by a view: an administrator has rights on every collection, folders included.
    if policy.is_admin:
        return (FULL_GUARDED_GRANT,)
    # A folder has no items, so no view of it exists that could hold the grants.
    if collection.kind is Kind.FOLDER:
        return usable_grants(policy.granted(collection.name, action), collection, catalogue)
    view = view_lookup(policy, catalogue, action)(collection.name)
    return view.grants if view else ()


def ability(grants: tuple[GuardedGrant, ...]) -> Ability:
    """Return `access`, and unless it is none, `fields` and `presets`.

    Access is full for every item, partial for items that a rule selects, or none.
    """
    if not grants:
        return {"access": "none"}
    return {
        "access": _extent(grants),
        "fields": fields_of(grants),
        "presets": presets_of(grants),
    }


def _extent(grants: tuple[GuardedGrant, ...]) -> str:
    for grant in grants:
        if grant.rule == UNRESTRICTED:
            return "full"
    return "partial"


def fields_of(grants: Iterable[Grant]) -> list[str]:
    """Return the fields that at least one of the grants covers, `*` for all."""
    names: set[str] = set()
    for grant in grants:
        names |= grant.fields
    if ALL_FIELDS in names:
        return [ALL_FIELDS]
    return sorted(names)


def presets_of(grants: Iterable[Grant]) -> dict[str, object]:
    """Return the presets of all grants; of two for one field the first counts."""
    presets: dict[str, object] = {}
    for grant in grants:
        for name, value in grant.presets.items():
            presets.setdefault(name, value)
    return presets
