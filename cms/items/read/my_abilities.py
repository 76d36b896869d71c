"""What a caller may do with items, by collection and by item."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from cms.access.abilities import Ability, abilities, effective_grants, fields_of, presets_of
from cms.access.guard import readable_collection, view_of
from cms.access.guarded_rules import GuardedGrant
from cms.errors import not_found
from cms.items.read.reads import keyed, parse_key
from cms.query.plan.read_plan import Predicate
from cms.query.sql.locks import check_rows, singleton_key
from cms.schema.model import Collection
from cms.store.context import RequestContext
from cms.store.fetching import fetch_fragment
from cms.store.identity import Identity
from cms.store.store import Store

# A stored item is not created again, and a caller who cannot read it gets no answer at all.
_ITEM_ACTIONS = ("update", "delete", "share")


def my_abilities(store: Store, identity: Identity) -> dict[str, dict[str, Ability]]:
    """Return what the caller may do, by collection and action.

    Without credentials that is what the Public role may do.
    """
    for attempt in store.unversioned_reads(identity):
        with attempt as context:
            answer = _abilities(context)
    return answer


def _abilities(context: RequestContext) -> dict[str, dict[str, Ability]]:
    return abilities(context.actor.policy, context.snapshot.catalogue)


def my_item_abilities(
    store: Store, identity: Identity, name: str, *, key: str | None = None
) -> dict[str, Ability]:
    """Return what the caller may do with one item, by action; that of a singleton has no key.

    Raises `Refused` as a read of the item does.
    """
    if key is None:
        for attempt in store.unversioned_reads(identity):
            with attempt as context:
                answer = _singleton_abilities(context, name=name)
        return answer
    for attempt in store.unversioned_reads(identity):
        with attempt as context:
            answer = _item_abilities(context, name=name, key=key)
    return answer


def _singleton_abilities(context: RequestContext, *, name: str) -> dict[str, Ability]:
    catalogue = context.snapshot.catalogue
    collection = readable_collection(name, catalogue=catalogue, policy=context.actor.policy)
    if not collection.is_singleton or collection.primary_key is None:
        raise not_found()
    for (key,) in fetch_fragment(context.fetch, singleton_key(collection), context.bindings()):
        visible = _abilities_on(context, collection, str(key))
        if visible is not None:
            return visible
    # A row that is missing or hidden; its first change creates one that is missing.
    created = _ability("update", _grants(context, collection, "create"))
    return {"update": created, "delete": {"access": False}, "share": {"access": False}}


def _item_abilities(context: RequestContext, *, name: str, key: str) -> dict[str, Ability]:
    # This refuses what a read of the item would refuse as well.
    collection = keyed(context, name)
    visible = _abilities_on(context, collection, parse_key(collection, key))
    # An item that the caller cannot read does not exist.
    if visible is None:
        raise not_found()
    return visible


def _abilities_on(
    context: RequestContext, collection: Collection, key: str
) -> dict[str, Ability] | None:
    """Return what the caller may do with an item; None for one that the caller cannot read."""
    grants = {action: _grants(context, collection, action) for action in _ITEM_ACTIONS}
    catalogue = context.snapshot.catalogue
    view = view_of(collection.name, catalogue=catalogue, policy=context.actor.policy)
    assert view, "the item's collection can be read"
    rules = [view.rule.predicate]
    for action_grants in grants.values():
        rules += [grant.rule.predicate for grant in action_grants]
    answers = _rule_answers(context, collection, key, rules)
    # The first answer is that of the view.
    if not next(answers):
        return None
    item_abilities = {}
    for action, action_grants in grants.items():
        applicable: list[GuardedGrant] = []
        for grant in action_grants:
            # There is an answer for each grant, in the order in which the rules were added.
            if next(answers):
                applicable.append(grant)
        item_abilities[action] = _ability(action, tuple(applicable))
    return item_abilities


def _grants(
    context: RequestContext, collection: Collection, action: str
) -> tuple[GuardedGrant, ...]:
    return effective_grants(context.actor.policy, collection, action, context.snapshot.catalogue)


def _rule_answers(
    context: RequestContext, collection: Collection, key: str, rules: Sequence[Predicate]
) -> Iterator[bool]:
    """Return whether an item fulfils each of the rules; raises `Refused` NOT_FOUND for no item."""
    # One statement, so that all answers are of the same row.
    question = check_rows(collection, [key], rules)
    rows = fetch_fragment(context.fetch, question, context.bindings())
    if not rows:
        raise not_found()
    _, *answers = rows[0]
    return iter(answers)


def _ability(action: str, grants: tuple[GuardedGrant, ...]) -> Ability:
    if action != "update":
        return {"access": bool(grants)}
    return {"access": bool(grants), "fields": fields_of(grants), "presets": presets_of(grants)}
