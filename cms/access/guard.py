"""The guard: the only way from a parsed query to one that may be planned."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from cms.access.name_guard import NameGuard
from cms.access.policy import Policy
from cms.access.query_guard import QueryGuard
from cms.access.rules import view_lookup
from cms.access.views import View
from cms.errors import Problem, Refused, forbidden, not_found
from cms.query.language.ast import Query, Window
from cms.query.language.limits import Tally
from cms.query.plan.guarded import Guarded
from cms.schema.keys import can_be_key
from cms.schema.model import Catalogue, Collection, Kind
from cms.schema.system import ENDPOINTS, is_system


@dataclass(frozen=True, slots=True)
class QueryBounds:
    """How much a query may open.

    `depth` is how many relations deep it may go; `page` bounds the keys that a to-many field lists
    when it is not opened. Queries with the same `tally` may open as many fields together as one
    alone.
    """

    depth: int
    page: Window | None = None
    tally: Tally = field(default_factory=Tally)


def guard(
    query: Query, collection: str, *, catalogue: Catalogue, policy: Policy, bounds: QueryBounds
) -> Guarded:
    """Return the query as this caller may ask it.

    Names are checked, `*` is written out, and rules stand beside the names. Raises `Refused`
    FORBIDDEN for hidden and missing names alike, and for an administrator NOT_FOUND (collection) or
    INVALID_QUERY (field) with the name.
    """
    names = NameGuard(
        catalogue, view_lookup(policy, catalogue), explains=policy.is_admin, depth=bounds.depth
    )
    # A collection that is hidden is refused before any name of the query is looked at.
    view = names.view(collection)
    guarded = QueryGuard(names, bounds.page, bounds.tally).query(query, view, 0)
    return Guarded(guarded, frozenset(names.touched_collections))


def view_of(
    collection: str, *, catalogue: Catalogue, policy: Policy, action: str = "read"
) -> View | None:
    """Return the caller's view of a collection for an action; None without a permission."""
    return view_lookup(policy, catalogue, action)(collection)


def read_only(collection: Collection) -> Problem:
    """Return the problem of a write to a collection that nobody can write here."""
    reason = _read_only_reason(collection)
    message = f'The items of "{collection.name}" can only be read here: {reason}.'
    return Problem("FORBIDDEN", message)


_VERBS = {"create": "INSERT", "update": "UPDATE", "delete": "DELETE"}


def untriggered(collection: Collection, *actions: str) -> Problem | None:
    """Return the problem where a view has an INSTEAD OF trigger for none of the actions."""
    if collection.kind is not Kind.VIEW or not collection.writable_actions.isdisjoint(actions):
        return None
    verb = _VERBS[actions[0]]
    message = f'"{collection.name}" is a view without an INSTEAD OF {verb} trigger.'
    return Problem("FORBIDDEN", message)


def _read_only_reason(collection: Collection) -> str:
    if collection.is_system:
        return "the service writes them itself"
    if collection.kind is Kind.FOLDER:
        return "it groups collections, and has no items"
    if collection.kind is Kind.VIEW:
        if collection.triggered_actions:
            return "the view has no column id to name an item by"
        return "it is a view without INSTEAD OF triggers"
    for key in collection.columns:
        if key.column and key.column.is_primary_key and not can_be_key(key):
            return f'keys of the type of "{key.name}" cannot name an item'
    return "the table has no primary key"


def readable_collection(collection: str, *, catalogue: Catalogue, policy: Policy) -> Collection:
    """Return a collection that the caller may read; raises `Refused` FORBIDDEN or NOT_FOUND."""
    # An administrator sees what exists, and a view of it takes longer to make than to look it up.
    if policy.is_admin:
        existing = catalogue.collections.get(collection)
        if existing is None or existing.kind is Kind.FOLDER:
            raise _no_collection(policy)
        return existing
    view = view_lookup(policy, catalogue)(collection)
    if view is None:
        raise _no_collection(policy)
    return view.collection


def writable_collection(
    collection: str,
    *,
    catalogue: Catalogue,
    policy: Policy,
    actions: Sequence[str] = ("create", "update", "delete"),
) -> Collection:
    """Return a collection whose items the caller may write.

    Raises `Refused` FORBIDDEN, or for administrators NOT_FOUND.
    """
    # Rights are checked before existence, so that both refusals are the same.
    if not policy.is_admin and not any(policy.granted(collection, action) for action in actions):
        raise forbidden()
    target = catalogue.collections.get(collection)
    if target is None or target.kind is Kind.FOLDER:
        raise _no_collection(policy)
    if not target.is_writable:
        raise Refused(read_only(target))
    if problem := untriggered(target, *actions):
        raise Refused(problem)
    return target


def _no_collection(policy: Policy) -> Refused:
    """Return the refusal of a hidden or missing collection, which administrators tell apart."""
    if policy.is_admin:
        return not_found("collection")
    return forbidden()


def require_not_system(collection: str, policy: Policy) -> None:
    """Refuse a system collection where only ordinary collections are allowed.

    Administrators get the reason. The name decides: a system collection that does not exist is
    refused with the same message.
    """
    if not is_system(collection):
        return
    # Callers other than administrators must not learn which system collections exist.
    if policy.is_admin:
        raise Refused(Problem("FORBIDDEN", _reason(collection)))
    raise forbidden()


def _reason(collection: str) -> str:
    path = ENDPOINTS.get(collection)
    where = f': "{collection}" is at {path}' if path else ""
    return f"System collections are reached by their own endpoints only{where}."
