"""What a caller may do, told in words (decisions, section 11)."""

from __future__ import annotations

from collections.abc import Iterable

from cms.access.policy import ALL_FIELDS, FULL_GRANT, Grant, Policy
from cms.access.rules import usable_grants, view_lookup
from cms.access.structure import ACTIONS
from cms.query.language.ast import EVERYTHING
from cms.schema.model import Catalogue, Collection, Kind

Ability = dict[str, object]


def abilities(policy: Policy, catalogue: Catalogue) -> dict[str, dict[str, Ability]]:
    """Return for each collection that some permission speaks of, and for each action, what the caller may do."""
    return {
        name: {
            action: ability(effective_grants(policy, collection, action, catalogue))
            for action in ACTIONS
        }
        for name, collection in catalogue.collections.items()
        if policy.is_admin or any(policy.granted(name, action) for action in ACTIONS)
    }


def effective_grants(
    policy: Policy, collection: Collection, action: str, catalogue: Catalogue
) -> tuple[Grant, ...]:
    """Return what a caller holds of a collection: only permissions whose rules can be applied, settled once."""
    if policy.is_admin:
        return (FULL_GRANT,)
    if collection.kind is Kind.FOLDER:  # there is nothing in it to be seen
        return usable_grants(policy.granted(collection.name, action), collection, catalogue)
    view = view_lookup(policy, catalogue, action)(collection.name)
    return view.grants if view else ()


def ability(grants: tuple[Grant, ...]) -> Ability:
    """Return `access` (full: every item; partial: those of a rule; none), and then `fields` and `presets`."""
    if not grants:
        return {"access": "none"}
    whole = any(grant.rule == EVERYTHING for grant in grants)
    return {
        "access": "full" if whole else "partial",
        "fields": fields_of(grants),
        "presets": presets_of(grants),
    }


def fields_of(grants: Iterable[Grant]) -> list[str]:
    """Return the fields that any of the grants speaks of."""
    found = {name for grant in grants for name in grant.fields}
    return [ALL_FIELDS] if ALL_FIELDS in found else sorted(found)


def presets_of(grants: Iterable[Grant]) -> dict[str, object]:
    """Return the presets of the grants together; of two for one field the first counts."""
    found: dict[str, object] = {}
    for grant in grants:
        for name, value in grant.presets.items():
            found.setdefault(name, value)
    return found
