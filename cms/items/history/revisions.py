"""Revisions of one item, and reverts to one of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from cms import jsontext
from cms.access.guard import readable_collection, view_of
from cms.access.guarded_rules import UNRESTRICTED
from cms.errors import not_found
from cms.items.read.prepare import ReadRequest, RowTest, narrow_to_key, statement_for
from cms.items.read.reads import Item, ReadAnswer, parse_key, read_list, read_one
from cms.items.write import writes
from cms.query.language.ast import Pick, Query, Slot
from cms.query.sql.locks import history_key
from cms.schema.model import Collection, Field
from cms.schema.names import FieldName
from cms.schema.system import REVISIONS
from cms.store.context import RequestContext
from cms.store.fetching import fetch_current, fetch_fragment
from cms.store.identity import Identity
from cms.store.store import Store

_AUTO_SPECIALS = frozenset(
    f"{value}-{event}" for value in ("date", "user", "role") for event in ("created", "updated")
)
"""Special markers of fields that the service fills, with the time and user of the revert itself."""


class _FormerItem(NamedTuple):
    """An item as a revision holds it: its collection, its key, and the values to write back."""

    collection: Collection
    key: str
    payload: dict[str, object]


def read_revisions(
    store: Store, identity: Identity, request: ReadRequest, *, key: str
) -> ReadAnswer:
    """Return the revisions of an item, deleted ones included, as the query string asks."""
    return read_list(store, identity, _narrowed_to_item(store, identity, request, key=key))


def read_revision(
    store: Store, identity: Identity, request: ReadRequest, *, key: str, revision: str
) -> ReadAnswer:
    """Return one revision of an item; raises `Refused` NOT_FOUND for another item's."""
    return read_one(
        store, identity, _narrowed_to_item(store, identity, request, key=key), key=revision
    )


def revert(
    store: Store, identity: Identity, target: writes.WriteTarget, *, revision: str
) -> bytes | None:
    """Give an item back the values of a revision, and return it.

    The collection of `target` is the one that names the revision, as its item is not known before.

    Secrets stay as they are, and so do fields that the service or the database fills. Raises
    `Refused` NOT_FOUND for an unknown revision and for an item that is gone.
    """
    # On the primary: a replica may not have the revision yet.
    for attempt in store.primary_reads(identity):
        with attempt as context:
            former = _former_item(store, revision, context)
    target = target._replace(collection=former.collection.name)
    return writes.restore(store, identity, target, key=former.key, payload=former.payload)


def _narrowed_to_item(
    store: Store, identity: Identity, request: ReadRequest, *, key: str
) -> ReadRequest:
    """Return the request narrowed to the revisions of one item; raises `Refused` NOT_FOUND."""
    for attempt in store.reads(identity):
        with attempt as context:
            tests = _tests_of_item(store, request.collection, key, context)
    return ReadRequest(REVISIONS, request.query_string, only=tests)


def _tests_of_item(
    store: Store, name: str, key: str, context: RequestContext
) -> tuple[RowTest, ...]:
    """Return the tests that the revisions of one item pass.

    Revisions of a deleted item are for callers who may read every item of the collection.
    """
    catalogue = context.snapshot.catalogue
    policy = context.actor.policy
    collection = readable_collection(name, catalogue=catalogue, policy=policy)
    if collection.primary_key is None:
        raise not_found()
    item = parse_key(collection, key)
    view = view_of(name, catalogue=catalogue, policy=policy)
    assert view, "the collection can be read"
    # No rule can be tried on an item that is gone, so a caller with a rule sees none of those.
    if view.rule != UNRESTRICTED and not _find_by_key(
        store, context, collection, collection.key_names, key=item
    ):
        raise not_found()
    item_name = _history_key(context, collection, item)
    tests = [RowTest("collection", "_eq", name), RowTest("item", "_eq", item_name)]
    # Older revisions are of a former collection of this name. Rules hide them from others than
    # administrators, who ask here for the present collection.
    last_former = collection.former_history.get(REVISIONS)
    if last_former and policy.is_admin:
        tests.append(RowTest("id", "_gt", str(last_former)))
    return tuple(tests)


def _history_key(context: RequestContext, collection: Collection, key: str) -> str:
    """Return a key as history names its item: as PostgreSQL writes it."""
    rows = fetch_fragment(context.fetch, history_key(collection, key), context.bindings())
    return str(rows[0][0])


def _former_item(store: Store, revision: str, context: RequestContext) -> _FormerItem:
    """Return the item of a revision; raises `Refused` NOT_FOUND."""
    catalogue = context.snapshot.catalogue
    revisions = catalogue.collections[REVISIONS]
    key = parse_key(revisions, revision)
    rows = _find_by_key(store, context, revisions, ("collection", "item", "data"), key=key)
    if not rows:
        raise not_found("revision")
    collection = catalogue.collections.get(rows[0]["collection"])
    # Rows hold JSON as text that is ready for an answer; here its values are needed.
    data: Any = jsontext.loads_stored(jsontext.dumps(rows[0]["data"]))
    if collection is None or not isinstance(data, dict):
        raise not_found("revision")
    # The revision is of a former collection of the same name.
    if int(key) <= collection.former_history.get(REVISIONS, 0):
        raise not_found("revision")
    # The whole item as a read of its columns shows it.
    payload = {
        name: value
        for name, value in data.items()
        if _is_restorable(collection, collection.fields.get(name))
    }
    return _FormerItem(collection, rows[0]["item"], payload)


def _is_restorable(collection: Collection, field: Field | None) -> bool:
    # Lists and fields that are gone have no column to write to.
    if field is None or field.column is None or field.column.is_generated:
        return False
    # A revision never holds a secret, and so cannot bring one back.
    return (
        field.name not in collection.key_names
        and not field.is_secret
        and not _AUTO_SPECIALS.intersection(field.special)
    )


def _find_by_key(
    store: Store,
    context: RequestContext,
    collection: Collection,
    names: Sequence[str],
    *,
    key: str,
) -> list[Item]:
    """Return the item of a key with these fields; nothing if the caller may not read it."""
    picks = tuple(Pick(name, FieldName(name)) for name in names)
    query = narrow_to_key(Query(picks=picks), Slot(0))
    statement = statement_for(store, context, collection.name, query)
    return statement.items(fetch_current(context, context.fetch, statement, (key,)))
