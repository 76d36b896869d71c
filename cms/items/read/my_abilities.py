"""What a caller may do with items, by collection and by item."""

from __future__ import annotations

from collections.abc import Sequence

from cms.access.abilities import Ability, abilities, effective_grants, fields_of, presets_of
from cms.access.guard import view_of
from cms.access.guarded_rules import GuardedGrant
from cms.database.connections import Row
from cms.errors import not_found
from cms.items.read.reads import keyed, parse_key
from cms.query.plan.bindings import Bindings, bind_values
from cms.query.plan.resolved import Predicate
from cms.query.sql.row_checks import check_rows
from cms.schema.model import Collection
from cms.store.context import RequestContext
from cms.store.identity import Identity
from cms.store.store import Store

_ITEM_ACTIONS = ("update", "delete", "share")


def my_abilities(store: Store, identity: Identity) -> dict[str, dict[str, Ability]]:
    """Return what the caller may do, by collection and action.

    Without credentials that is what the Public role may do.
    """
    return store.run_unversioned_read(
        identity, lambda context: abilities(context.actor.policy, context.snapshot.catalogue)
    )


def my_item_abilities(
    store: Store, identity: Identity, name: str, *, key: str
) -> dict[str, Ability]:
    """Return what the caller may do with one item, by action.

    Raises `Refused` as a read of the item does.
    """

    def work(context: RequestContext) -> dict[str, Ability]:
        collection = keyed(context, name)
        grants = {action: _grants(context, collection, action) for action in _ITEM_ACTIONS}
        view = view_of(name, catalogue=context.snapshot.catalogue, policy=context.actor.policy)
        assert view, "the item's collection can be read"
        rules = [view.rule.predicate]
        for granted in grants.values():
            rules += [grant.rule.predicate for grant in granted]
        rows = _fetch_checks(store, context, collection, parse_key(collection, key), rules)
        if not rows:
            raise not_found()
        _, is_readable, *passed = rows[0]
        if not is_readable:
            raise not_found()
        # `passed` has an answer for each grant, in the order of `rules`.
        answers = iter(passed)
        item_abilities = {}
        for action, granted in grants.items():
            applicable = tuple(grant for grant in granted if next(answers))
            item_abilities[action] = _ability(action, applicable)
        return item_abilities

    return store.run_unversioned_read(identity, work)


def _grants(
    context: RequestContext, collection: Collection, action: str
) -> tuple[GuardedGrant, ...]:
    return effective_grants(context.actor.policy, collection, action, context.snapshot.catalogue)


def _fetch_checks(
    store: Store,
    context: RequestContext,
    collection: Collection,
    key: str,
    rules: Sequence[Predicate],
) -> list[Row]:
    text, values = check_rows(collection, [key], rules).numbered()
    bindings = Bindings((), context.actor.user, context.actor.role)
    return store.database.fetch(text, bind_values(values, bindings))


def _ability(action: str, grants: tuple[GuardedGrant, ...]) -> Ability:
    if action != "update":
        return {"access": bool(grants)}
    return {"access": bool(grants), "fields": fields_of(grants), "presets": presets_of(grants)}
