"""What a read becomes: the statement, its parameters, PostgreSQL's plan, and what each rule added to it."""

from __future__ import annotations

import uuid
from urllib.parse import unquote

from cms.access.endpoints import require_not_system
from cms.access.guard import view_of
from cms.access.policy import ADMIN, FULL_GRANT, Grant
from cms.access.rules import guarded_rule
from cms.access.structure import ACTIONS
from cms.access.views import View
from cms.errors import Refused, invalid_query
from cms.items.read.prepare import ReadRequest, prepare_read
from cms.items.read.reads import keyed, parse_key
from cms.query.language.ast import Filter
from cms.query.plan.bindings import Bindings, bind_values
from cms.query.plan.plan import resolve_rule
from cms.query.sql.expressions import predicate
from cms.schema.model import Catalogue, Collection
from cms.schema.system import ENDPOINTS
from cms.store.context import RequestContext
from cms.store.identity import ANONYMOUS, Identity
from cms.store.store import Store, require_admin

_STRUCTURE_COLLECTIONS = frozenset({"system_collections", "system_fields", "system_relations"})
"""Collections whose endpoints answer from the catalogue, without a statement."""

_COLLECTIONS_BY_PATH = {
    path: name for name, path in ENDPOINTS.items() if name not in _STRUCTURE_COLLECTIONS
}
PUBLIC = "public"

Json = dict[str, object]


def explain(store: Store, identity: Identity, path: str, *, user: str | None = None) -> Json:
    """Return `statement`, `parameters`, `plan` and `rules` of the read at a path such as /items/articles?limit=5.

    The path of one item, /items/articles/1, is taken as well, and so are those of system collections, as /users.

    Nothing is executed. For administrators, who may ask how it is for another `user`, or for "public". Raises
    `Refused` as the read itself would, and INVALID_QUERY for a user that may not act.
    """
    store.run_unversioned_read(identity, lambda context: require_admin(context.actor))
    request, key = _parse_path(path)
    caller = identity if user is None else _identity_of(store, user)

    def work(context: RequestContext) -> Json:
        named = () if key is None else (parse_key(keyed(context, request.collection), key),)
        statement, literals = prepare_read(store, context, request, keyed=key is not None)
        bindings = Bindings((*literals, *named), context.actor.user, context.actor.role)
        values = bind_values(statement.values, bindings)
        rows = store.database.fetch(f"EXPLAIN (FORMAT JSON) {statement.text}", values)
        views = [_view(context, name) for name in sorted(statement.touched_collections)]
        rules = [
            told
            for view in views
            if view
            for told in _rules(view, context.snapshot.catalogue, bindings)
        ]
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
    """Return each permission that gives a user (or "public") an action on a collection, its rule in words and in SQL.

    One that cannot be applied comes with its `fault`. For administrators.
    """
    store.run_unversioned_read(identity, lambda context: require_admin(context.actor))
    if action not in ACTIONS:
        raise invalid_query(f"action is one of {', '.join(ACTIONS)}", parameter="action")

    def work(context: RequestContext) -> list[Json]:
        catalogue, actor = context.snapshot.catalogue, context.actor
        found = catalogue.collections.get(collection)
        if found is None:
            raise invalid_query("There is no such collection", parameter="collection")
        held = (
            [FULL_GRANT]
            if actor.policy.is_admin
            else actor.policy.grants.get((collection, action), ())
        )
        bindings = Bindings((), actor.user, actor.role)
        return [_grant_record(grant, found, catalogue, bindings) for grant in held]

    return store.run_unversioned_read(_identity_of(store, user), work)


def _grant_record(
    grant: Grant, collection: Collection, catalogue: Catalogue, bindings: Bindings
) -> Json:
    said: Json = {
        "permission": grant.id,
        "rule": grant.rule_source,
        "fields": sorted(grant.fields),
        "presets": dict(grant.presets),
        "fault": grant.problem,
    }
    try:
        rule = guarded_rule(grant.rule, collection, catalogue)
    except Refused as refused:
        return said | {"sql": None, "parameters": [], "fault": refused.problems[0].message}
    return said | _printed(rule, collection, catalogue, bindings)


def _parse_path(path: str) -> tuple[ReadRequest, str | None]:
    """Return the read at a path, and the key where it names one; a system collection has a path of its own."""
    bare, _, query_string = path.partition("?")
    root, *names = [unquote(name) for name in bare.removeprefix("/").split("/")]
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
        found = ANONYMOUS if user == PUBLIC else Identity(user=str(uuid.UUID(user)), may_enrol=True)
        store.run_unversioned_read(found, lambda context: None)
    except (ValueError, Refused):
        raise invalid_query(
            f'user is the id of an active user, or "{PUBLIC}"', parameter="user"
        ) from None
    return found


def _view(context: RequestContext, collection: str) -> View | None:
    return view_of(collection, catalogue=context.snapshot.catalogue, policy=context.actor.policy)


def _rules(view: View, catalogue: Catalogue, bindings: Bindings) -> list[Json]:
    """Tell each permission that takes part, with its rule in words and in SQL (the collection's rows are t0)."""
    return [
        {
            "collection": grant.collection,
            "permission": grant.id,
            "rule": grant.rule_source,
            "fields": sorted(grant.fields),
            **_printed(grant.rule, view.collection, catalogue, bindings),
        }
        for grant in view.grants
    ]


def _printed(
    rule: Filter, collection: Collection, catalogue: Catalogue, bindings: Bindings
) -> Json:
    text, values = predicate(resolve_rule(rule, collection, catalogue), 0).numbered()
    return {"sql": text, "parameters": bind_values(values, bindings)}
