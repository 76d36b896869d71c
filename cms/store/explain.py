"""What a read becomes: the statement, its parameters, PostgreSQL's plan, and what each rule added to it."""

from __future__ import annotations

import uuid
from urllib.parse import unquote

from cms.access.endpoints import require_open
from cms.access.guard import view_of
from cms.access.policy import ADMIN, EVERYTHING_GRANTED, Grant
from cms.access.rules import settled
from cms.access.structure import ACTIONS
from cms.access.views import View
from cms.errors import Refused, invalid_query
from cms.query.ast import Filter
from cms.query.bind import Context, bound
from cms.query.expressions import predicate
from cms.query.plan import resolved
from cms.schema.model import Catalogue, Collection
from cms.schema.system import ENDPOINTS
from cms.store.reads import Ask, keyed, parse_key, prepared
from cms.store.store import ANONYMOUS, Identity, Scene, Store, require_admin

_STRUCTURE = frozenset({"system_collections", "system_fields", "system_relations"})
"""Collections whose endpoints answer from the catalogue, without a statement."""

_OWN_PATHS = {path: name for name, path in ENDPOINTS.items() if name not in _STRUCTURE}
PUBLIC = "public"

Json = dict[str, object]


def explain(store: Store, identity: Identity, path: str, *, user: str | None = None) -> Json:
    """Return `statement`, `parameters`, `plan` and `rules` of the read at a path such as /items/articles?limit=5.

    The path of one item, /items/articles/1, is taken as well, and so are those of system collections, as /users.

    Nothing is executed. For administrators, who may ask how it is for another `user`, or for "public". Raises
    `Refused` as the read itself would, and INVALID_QUERY for a user that may not act.
    """
    store.at_rest(identity, lambda scene: require_admin(scene.actor))
    ask, key = _ask(path)
    caller = identity if user is None else _caller(store, user)

    def work(scene: Scene) -> Json:
        named = () if key is None else (parse_key(keyed(scene, ask.collection), key),)
        statement, literals = prepared(store, scene, ask, keyed=key is not None)
        context = Context((*literals, *named), scene.actor.user, scene.actor.role)
        values = bound(statement.values, context)
        rows = store.database.fetch(f"EXPLAIN (FORMAT JSON) {statement.text}", values)
        views = [_view(scene, name) for name in sorted(statement.touched)]
        rules = [told for view in views if view for told in _rules(view, scene.snapshot.catalogue, context)]
        return {"statement": statement.text, "parameters": values, "plan": rows[0][0], "rules": rules}

    return store.at_rest(caller, work)


def explain_rights(store: Store, identity: Identity, *, user: str, collection: str, action: str) -> list[Json]:
    """Return each permission that gives a user (or "public") an action on a collection, its rule in words and in SQL.

    One that cannot be applied comes with its `fault`. For administrators.
    """
    store.at_rest(identity, lambda scene: require_admin(scene.actor))
    if action not in ACTIONS:
        raise invalid_query(f"action is one of {', '.join(ACTIONS)}", parameter="action")

    def work(scene: Scene) -> list[Json]:
        catalogue, actor = scene.snapshot.catalogue, scene.actor
        found = catalogue.collections.get(collection)
        if found is None:
            raise invalid_query("There is no such collection", parameter="collection")
        held = [EVERYTHING_GRANTED] if actor.policy.admin else actor.policy.grants.get((collection, action), ())
        context = Context((), actor.user, actor.role)
        return [_told(grant, found, catalogue, context) for grant in held]

    return store.at_rest(_caller(store, user), work)


def _told(grant: Grant, collection: Collection, catalogue: Catalogue, context: Context) -> Json:
    said: Json = {
        "permission": grant.id,
        "rule": grant.said,
        "fields": sorted(grant.fields),
        "presets": dict(grant.presets),
        "fault": grant.fault,
    }
    try:
        rule = settled(grant.rule, collection, catalogue)
    except Refused as refused:
        return said | {"sql": None, "parameters": [], "fault": refused.problems[0].message}
    return said | _printed(rule, collection, catalogue, context)


def _ask(path: str) -> tuple[Ask, str | None]:
    """Return the read at a path, and the key where it names one; a system collection has a path of its own."""
    bare, _, query_string = path.partition("?")
    root, *names = [unquote(name) for name in bare.removeprefix("/").split("/")]
    if root == "items" and names:
        collection = names.pop(0)
        require_open(collection, ADMIN)
    else:
        collection = _OWN_PATHS.get(f"/{root}", "")
    if not bare.startswith("/") or not collection or not all(names) or len(names) > 1:
        raise invalid_query('path is the path of items, such as "/items/articles?limit=5"', parameter="path")
    return Ask(collection, query_string), names[0] if names else None


def _caller(store: Store, user: str) -> Identity:
    try:
        found = ANONYMOUS if user == PUBLIC else Identity(user=str(uuid.UUID(user)), enrolling=True)
        store.at_rest(found, lambda scene: None)
    except (ValueError, Refused):
        raise invalid_query(f'user is the id of an active user, or "{PUBLIC}"', parameter="user") from None
    return found


def _view(scene: Scene, collection: str) -> View | None:
    return view_of(collection, catalogue=scene.snapshot.catalogue, policy=scene.actor.policy)


def _rules(view: View, catalogue: Catalogue, context: Context) -> list[Json]:
    """Tell each permission that takes part, with its rule in words and in SQL (the collection's rows are t0)."""
    return [
        {
            "collection": grant.collection,
            "permission": grant.id,
            "rule": grant.said,
            "fields": sorted(grant.fields),
            **_printed(grant.rule, view.collection, catalogue, context),
        }
        for grant in view.grants
    ]


def _printed(rule: Filter, collection: Collection, catalogue: Catalogue, context: Context) -> Json:
    text, values = predicate(resolved(rule, collection, catalogue), 0).numbered()
    return {"sql": text, "parameters": bound(values, context)}
