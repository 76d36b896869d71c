"""The only door from what a request said to what may be planned (decisions, section 11)."""

from __future__ import annotations

from collections.abc import Sequence

from cms.access.policy import Policy
from cms.access.query_guard import QueryGuard
from cms.access.rules import view_lookup
from cms.access.views import View
from cms.errors import Problem, Refused, forbidden, not_found
from cms.query.language.ast import Query, Window
from cms.query.plan.guarded import Guarded
from cms.schema.model import Catalogue, Collection, Kind


def guard(
    query: Query,
    collection: str,
    *,
    catalogue: Catalogue,
    policy: Policy,
    depth: int,
    page: Window | None = None,
) -> Guarded:
    """Return the query as this caller may ask it: names checked, `*` written out, rules beside them.

    `depth` is how many relations deep it may go, `page` how many keys a to-many field lists that is not opened.
    Raises `Refused`: FORBIDDEN for whatever is hidden or missing, and
    for an administrator NOT_FOUND (collection) or INVALID_QUERY (field) with its name.
    """
    walker = QueryGuard(
        catalogue, view_lookup(policy, catalogue), explains=policy.is_admin, depth=depth, page=page
    )
    view = walker.view(collection)
    return Guarded(
        view.collection, walker.query(query, view, 0), frozenset(walker.touched_collections)
    )


def view_of(
    collection: str, *, catalogue: Catalogue, policy: Policy, action: str = "read"
) -> View | None:
    """Return what a caller sees of a collection for an action; None is nothing."""
    return view_lookup(policy, catalogue, action)(collection)


def readable_collection(collection: str, *, catalogue: Catalogue, policy: Policy) -> Collection:
    """Return the collection when the caller may read it; raises `Refused` FORBIDDEN or NOT_FOUND."""
    view = view_lookup(policy, catalogue)(collection)
    if view is None:
        raise not_found("collection") if policy.is_admin else forbidden()
    return view.collection


def writable_collection(
    collection: str,
    *,
    catalogue: Catalogue,
    policy: Policy,
    actions: Sequence[str] = ("create", "update", "delete"),
) -> Collection:
    """Return the collection when the caller may write its items; raises `Refused` FORBIDDEN or NOT_FOUND."""
    if not policy.is_admin and not any(policy.granted(collection, action) for action in actions):
        raise forbidden()
    found = catalogue.collections.get(collection)
    if found is None or found.kind is Kind.FOLDER:
        raise not_found("collection") if policy.is_admin else forbidden()
    if not found.writable:
        raise Refused(Problem("FORBIDDEN", f'The items of "{collection}" can only be read here.'))
    return found
