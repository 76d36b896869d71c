"""Reads explained: statement and parameters, PostgreSQL's plan, and the rules that apply."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from typing import NamedTuple
from urllib.parse import unquote

from cms.access.guard import require_not_system, view_of
from cms.access.guarded_rules import GuardedRule
from cms.access.policy import ADMIN, FULL_GRANT, StoredGrant
from cms.access.rules import guarded_rule
from cms.access.views import View
from cms.access.visible_structure import ACTIONS
from cms.errors import Refused, invalid_query
from cms.items.read.estimated_counts import explained
from cms.items.read.prepare import ReadRequest, prepare_read
from cms.items.read.reads import prepare_item_read
from cms.query.plan.bindings import Bindings, bind_values
from cms.query.sql.expressions import predicate
from cms.schema.model import Catalogue, Collection
from cms.schema.system import ENDPOINTS, STRUCTURE_COLLECTIONS
from cms.store.context import RequestContext
from cms.store.identity import ANONYMOUS, Identity
from cms.store.store import Store

# The endpoints of the structure answer from the catalogue, without a statement.
_COLLECTIONS_BY_PATH = {
    path: name for name, path in ENDPOINTS.items() if name not in STRUCTURE_COLLECTIONS
}
PUBLIC = "public"

Explanation = dict[str, object]
"""The answer about a read, a permission or a rule, ready for JSON."""


class _ItemsRead(NamedTuple):
    """A read to explain: of a list, or of the item of a key."""

    request: ReadRequest
    key: str | None


def explain(store: Store, identity: Identity, path: str, *, user: str | None = None) -> Explanation:
    """Return `statement`, `parameters`, `plan` and `rules` of the read at a path.

    That is a path such as /items/articles?limit=5, or of one item as /items/articles/1, or of a
    system collection as /users.

    Nothing is executed. Only administrators may ask, also for another `user` or for "public".
    Raises `Refused` as the read itself would, and INVALID_QUERY for a user that may not act.
    """
    # This check is for the caller; everything else uses the rights of the user who is asked about.
    store.require_administrator(identity)
    read = _parse_path(path)
    caller = identity
    if user is not None:
        caller = _identity_of(store, user)
    for attempt in store.unversioned_reads(caller):
        with attempt as context:
            answer = _explain_read(store, read, context)
    return answer


def _explain_read(store: Store, read: _ItemsRead, context: RequestContext) -> Explanation:
    if read.key is None:
        statement, literals = prepare_read(store, context, read.request, for_answer=True)
    else:
        statement, literals = prepare_item_read(store, context, read.request, key=read.key)
    bindings = context.bindings(literals)
    parameters = bind_values(statement.values, bindings)
    rules: list[Explanation] = []
    # Sorted, because the order of a set differs from process to process.
    for name in sorted(statement.touched_collections):
        view = _view(context, name)
        if view:
            rules += _rules(view, bindings)
    return {
        "statement": statement.text,
        "parameters": parameters,
        "plan": explained(context.fetch, statement.text, parameters),
        "rules": rules,
    }


def explain_rights(
    store: Store, identity: Identity, *, user: str, collection: str, action: str
) -> list[Explanation]:
    """Return each permission that gives a user (or "public") an action on a collection.

    It comes with its rule in words and in SQL; one that cannot be applied comes with its `fault`.
    Only administrators may ask.
    """
    store.require_administrator(identity)
    if action not in ACTIONS:
        raise invalid_query(f"action is one of {', '.join(ACTIONS)}", parameter="action")
    for attempt in store.unversioned_reads(_identity_of(store, user)):
        with attempt as context:
            answer = _explain_grants(context, name=collection, action=action)
    return answer


def _explain_grants(context: RequestContext, *, name: str, action: str) -> list[Explanation]:
    catalogue = context.snapshot.catalogue
    policy = context.actor.policy
    collection = catalogue.collections.get(name)
    if collection is None:
        raise invalid_query("There is no such collection", parameter="collection")
    grants: Sequence[StoredGrant] = policy.grants.get((name, action), ())
    # An administrator has no stored permissions, and needs none.
    if policy.is_admin:
        grants = [FULL_GRANT]
    bindings = context.bindings()
    return [_grant_record(grant, collection, catalogue, bindings) for grant in grants]


def _grant_record(
    grant: StoredGrant, collection: Collection, catalogue: Catalogue, bindings: Bindings
) -> Explanation:
    record: Explanation = {
        "permission": grant.id,
        "rule": grant.rule_source,
        "fields": sorted(grant.fields),
        "presets": dict(grant.presets),
        "fault": grant.problem,
    }
    # A stored rule that cannot be applied grants nothing; here its fault is shown.
    try:
        rule = guarded_rule(grant.rule, collection, catalogue)
    except Refused as refused:
        return record | {"sql": None, "parameters": [], "fault": refused.problems[0].message}
    return record | _printed(rule, bindings)


def _parse_path(path: str) -> _ItemsRead:
    """Return the read at a path; raises `Refused` INVALID_QUERY for a path of no items."""
    plain_path, _, query_string = path.partition("?")
    # As /items/articles, /items/articles/1 or /users/5.
    segments = plain_path.removeprefix("/").split("/")
    root, *names = map(unquote, segments)
    # System collections have paths of their own, outside /items.
    if root == "items" and names:
        collection = names.pop(0)
        require_not_system(collection, ADMIN)
    else:
        collection = _COLLECTIONS_BY_PATH.get(f"/{root}", "")
    # The remaining name is the key, if there is one.
    if not plain_path.startswith("/") or not collection or not all(names) or len(names) > 1:
        raise invalid_query(
            'path is the path of items, such as "/items/articles?limit=5"', parameter="path"
        )
    key = None
    if names:
        key = names[0]
    return _ItemsRead(ReadRequest(collection, query_string), key)


def _identity_of(store: Store, user: str) -> Identity:
    try:
        identity = ANONYMOUS
        if user != PUBLIC:
            # Also a user who still has to set up a second factor has rights to explain.
            identity = Identity(user=str(uuid.UUID(user)), may_enrol=True)
        # An empty read: it is refused where the user may not act.
        for attempt in store.unversioned_reads(identity):
            with attempt:
                pass
    except (ValueError, Refused):
        raise invalid_query(
            f'user is the id of an active user, or "{PUBLIC}"', parameter="user"
        ) from None
    return identity


def _view(context: RequestContext, collection: str) -> View | None:
    return view_of(collection, catalogue=context.snapshot.catalogue, policy=context.actor.policy)


def _rules(view: View, bindings: Bindings) -> list[Explanation]:
    """Return each permission of a view, with its rule in words and in SQL.

    The SQL names the collection's rows t0.
    """
    records: list[Explanation] = []
    for grant in view.grants:
        record: Explanation = {
            "collection": grant.collection,
            "permission": grant.id,
            "rule": grant.rule_source,
            "fields": sorted(grant.fields),
        }
        records.append(record | _printed(grant.rule, bindings))
    return records


def _printed(rule: GuardedRule, bindings: Bindings) -> Explanation:
    text, values = predicate(rule.predicate, 0).numbered()
    return {"sql": text, "parameters": bind_values(values, bindings)}
