"""What a read becomes: its statement and parameters, PostgreSQL's plan, and the rules in it."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from urllib.parse import unquote

from cms.access.endpoints import require_not_system
from cms.access.guard import view_of
from cms.access.guarded_rules import GuardedRule
from cms.access.policy import ADMIN, FULL_GRANT, StoredGrant
from cms.access.rules import guarded_rule
from cms.access.views import View
from cms.access.visible_structure import ACTIONS
from cms.errors import Refused, invalid_query
from cms.items.read.prepare import ReadRequest, prepare_read
from cms.items.read.reads import keyed, parse_key
from cms.query.plan.bindings import Bindings, bind_values
from cms.query.sql.expressions import predicate
from cms.schema.model import Catalogue, Collection
from cms.schema.system import ENDPOINTS, STRUCTURE_COLLECTIONS
from cms.store.context import RequestContext
from cms.store.identity import ANONYMOUS, Identity
from cms.store.store import Store, require_admin

# The endpoints of the structure answer from the catalogue, without a statement.
_COLLECTIONS_BY_PATH = {
    path: name for name, path in ENDPOINTS.items() if name not in STRUCTURE_COLLECTIONS
}
PUBLIC = "public"

Json = dict[str, object]


def explain(store: Store, identity: Identity, path: str, *, user: str | None = None) -> Json:
    """Return `statement`, `parameters`, `plan` and `rules` of the read at a path.

    That is a path such as /items/articles?limit=5, or of one item as /items/articles/1, or of a
    system collection as /users.

    Nothing is executed. Only administrators may ask, also for another `user` or for "public".
    Raises `Refused` as the read itself would, and INVALID_QUERY for a user that may not act.
    """
    store.run_unversioned_read(identity, lambda context: require_admin(context.actor))
    request, key = _parse_path(path)
    caller = identity if user is None else _identity_of(store, user)

    def work(context: RequestContext) -> Json:
        keys = []
        if key is not None:
            keys.append(parse_key(keyed(context, request.collection), key))
        statement, literals = prepare_read(store, context, request, keyed=key is not None)
        bindings = Bindings((*literals, *keys), context.actor.user, context.actor.role)
        values = bind_values(statement.values, bindings)
        rows = store.database.fetch(f"EXPLAIN (FORMAT JSON) {statement.text}", values)
        rules: list[Json] = []
        for name in sorted(statement.touched_collections):
            view = _view(context, name)
            if view:
                rules += _rules(view, bindings)
        return {
            "statement": statement.text,
            "parameters": values,
            "plan": rows[0][0],
            "rules": rules,
        }

    return store.run_unversioned_read(caller, work)


def explain_rights(
    store: Store, identity: Identity, *, user: str, collection: str, action: str
) -> list[Json]:
    """Return each permission that gives a user (or "public") an action on a collection.

    It comes with its rule in words and in SQL; one that cannot be applied comes with its `fault`.
    Only administrators may ask.
    """
    store.run_unversioned_read(identity, lambda context: require_admin(context.actor))
    if action not in ACTIONS:
        raise invalid_query(f"action is one of {', '.join(ACTIONS)}", parameter="action")

    def work(context: RequestContext) -> list[Json]:
        catalogue = context.snapshot.catalogue
        actor = context.actor
        target = catalogue.collections.get(collection)
        if target is None:
            raise invalid_query("There is no such collection", parameter="collection")
        grants: Sequence[StoredGrant] = actor.policy.grants.get((collection, action), ())
        if actor.policy.is_admin:
            grants = [FULL_GRANT]
        bindings = Bindings((), actor.user, actor.role)
        return [_grant_record(grant, target, catalogue, bindings) for grant in grants]

    return store.run_unversioned_read(_identity_of(store, user), work)


def _grant_record(
    grant: StoredGrant, collection: Collection, catalogue: Catalogue, bindings: Bindings
) -> Json:
    record: Json = {
        "permission": grant.id,
        "rule": grant.rule_source,
        "fields": sorted(grant.fields),
        "presets": dict(grant.presets),
        "fault": grant.problem,
    }
    try:
        rule = guarded_rule(grant.rule, collection, catalogue)
    except Refused as refused:
        return record | {"sql": None, "parameters": [], "fault": refused.problems[0].message}
    return record | _printed(rule, bindings)


def _parse_path(path: str) -> tuple[ReadRequest, str | None]:
    """Return the read at a path, and the key if the path names one."""
    bare, _, query_string = path.partition("?")
    root, *names = [unquote(name) for name in bare.removeprefix("/").split("/")]
    # System collections have paths of their own, outside /items.
    if root == "items" and names:
        collection = names.pop(0)
        require_not_system(collection, ADMIN)
    else:
        collection = _COLLECTIONS_BY_PATH.get(f"/{root}", "")
    if not bare.startswith("/") or not collection or not all(names) or len(names) > 1:
        raise invalid_query(
            'path is the path of items, such as "/items/articles?limit=5"', parameter="path"
        )
    return ReadRequest(collection, query_string), names[0] if names else None


def _identity_of(store: Store, user: str) -> Identity:
    try:
        identity = ANONYMOUS
        if user != PUBLIC:
            identity = Identity(user=str(uuid.UUID(user)), may_enrol=True)
        # An empty read: it is refused where the user may not act.
        store.run_unversioned_read(identity, lambda context: None)
    except (ValueError, Refused):
        raise invalid_query(
            f'user is the id of an active user, or "{PUBLIC}"', parameter="user"
        ) from None
    return identity


def _view(context: RequestContext, collection: str) -> View | None:
    return view_of(collection, catalogue=context.snapshot.catalogue, policy=context.actor.policy)


def _rules(view: View, bindings: Bindings) -> list[Json]:
    """Return each permission of a view, with its rule in words and in SQL.

    The SQL names the collection's rows t0.
    """
    return [
        {
            "collection": grant.collection,
            "permission": grant.id,
            "rule": grant.rule_source,
            "fields": sorted(grant.fields),
            **_printed(grant.rule, bindings),
        }
        for grant in view.grants
    ]


def _printed(rule: GuardedRule, bindings: Bindings) -> Json:
    text, values = predicate(rule.predicate, 0).numbered()
    return {"sql": text, "parameters": bind_values(values, bindings)}
