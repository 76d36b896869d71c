"""What a caller may do with the items that are there (decisions, section 11)."""

from __future__ import annotations

from collections.abc import Sequence

from cms.access.abilities import Ability, abilities, fields_of, grants_of, presets_of
from cms.access.guard import view_of
from cms.access.policy import Grant
from cms.errors import not_found
from cms.query.ast import Filter
from cms.query.bind import Context, bound
from cms.query.gates import gate
from cms.query.plan import resolved
from cms.schema.model import Collection
from cms.store.database import Row
from cms.store.reads import keyed, parse_key
from cms.store.store import Identity, Scene, Store

_ITEM_ACTIONS = ("update", "delete", "share")


def my_abilities(store: Store, identity: Identity) -> dict[str, dict[str, Ability]]:
    """Return what the caller may do, by collection and action; without credentials what the Public role may."""
    return store.at_rest(identity, lambda scene: abilities(scene.actor.policy, scene.snapshot.catalogue))


def my_abilities_with(store: Store, identity: Identity, name: str, *, key: str) -> dict[str, Ability]:
    """Return what the caller may do with one item, by action; raises `Refused` as a read of the item does."""

    def work(scene: Scene) -> dict[str, Ability]:
        collection = keyed(scene, name)
        grants = {action: _grants(scene, collection, action) for action in _ITEM_ACTIONS}
        view = view_of(name, catalogue=scene.snapshot.catalogue, policy=scene.actor.policy)
        assert view, "the item's collection can be read"
        rules = [view.rule, *(grant.rule for found in grants.values() for grant in found)]
        rows = _asked(store, scene, collection, parse_key(collection, key), rules)
        if not rows or not rows[0][1]:
            raise not_found()
        answers = iter(rows[0][2:])
        held = {action: tuple(grant for grant in found if next(answers)) for action, found in grants.items()}
        return {action: _ability(action, found) for action, found in held.items()}

    return store.at_rest(identity, work)


def _grants(scene: Scene, collection: Collection, action: str) -> tuple[Grant, ...]:
    return grants_of(scene.actor.policy, collection, action, scene.snapshot.catalogue)


def _asked(store: Store, scene: Scene, collection: Collection, key: str, rules: Sequence[Filter]) -> list[Row]:
    predicates = [resolved(rule, collection, scene.snapshot.catalogue) for rule in rules]
    text, values = gate(collection, [key], predicates).numbered()
    return store.database.fetch(text, bound(values, Context((), scene.actor.user, scene.actor.role)))


def _ability(action: str, grants: tuple[Grant, ...]) -> Ability:
    if action != "update":
        return {"access": bool(grants)}
    return {"access": bool(grants), "fields": fields_of(grants), "presets": presets_of(grants)}
