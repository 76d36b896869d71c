"""Revisions of one item, and the way back to one of them (specification, sections 4.4 and 4.10)."""

from __future__ import annotations

from typing import Any

from cms import jsontext
from cms.access.guard import readable, view_of
from cms.errors import not_found
from cms.query.ast import EVERYTHING, Name, Pick, Query, Slot
from cms.query.bind import Context, bound
from cms.schema.model import Collection, Field
from cms.store import writes
from cms.store.counters import check_version
from cms.store.once import Once
from cms.store.reads import Answer, Ask, Item, by_key, parse_key, read_list, read_one, statement_for
from cms.store.store import Identity, Scene, Store

REVISIONS = "system_revisions"

_STAMPED = frozenset(f"{kind}-{moment}" for kind in ("date", "user", "role") for moment in ("created", "updated"))


def read_revisions(store: Store, identity: Identity, ask: tuple[str, str], *, key: str) -> Answer:
    """Return the revisions of an item, those of one that is gone as well, as the query string asks."""
    return read_list(store, identity, _of_item(store, identity, ask, key=key))


def read_revision(store: Store, identity: Identity, ask: tuple[str, str], *, key: str, revision: str) -> Answer:
    """Return one revision of an item; raises `Refused` NOT_FOUND for another item's."""
    return read_one(store, identity, _of_item(store, identity, ask, key=key), key=revision)


def revert(
    store: Store, identity: Identity, query_string: str, *, revision: str, once: Once | None = None
) -> bytes | None:
    """Give an item back what it held at a revision, and return it.

    What the service or the database fills in, secrets, and fields that are no longer there are left as they are.
    Raises `Refused` NOT_FOUND for an unknown revision and for an item that is gone.
    """
    collection, key, payload = store.checking(identity, lambda scene: _former(store, scene, revision))
    ask = collection.name, query_string
    return writes.restore(store, identity, ask, key=key, payload=payload, once=once)


def _of_item(store: Store, identity: Identity, ask: tuple[str, str], *, key: str) -> Ask:
    """Narrow a read of revisions to an item; of one that is not there, for who sees every item of the collection."""
    name, query_string = ask

    def work(scene: Scene) -> tuple[tuple[str, str, str], ...]:
        collection = readable(name, catalogue=scene.snapshot.catalogue, policy=scene.actor.policy)
        found = parse_key(collection, key) if collection.primary_key else ""
        view = view_of(name, catalogue=scene.snapshot.catalogue, policy=scene.actor.policy)
        assert view, "the collection can be read"
        if not found or (view.rule != EVERYTHING and not _is_there(store, scene, collection, found)):
            raise not_found()
        last = collection.last_of_others.get(REVISIONS)
        own = (
            (("id", "_gt", str(last)),) if last and scene.actor.policy.admin else ()
        )  # others see no older ones anyway
        return ("collection", "_eq", name), ("item", "_eq", found), *own

    return Ask(REVISIONS, query_string, only=store.reading(identity, work))


def _is_there(store: Store, scene: Scene, collection: Collection, key: str) -> bool:
    name = str(collection.primary_key)
    return bool(_by_key(store, scene, collection, (name,), key=key))


def _former(store: Store, scene: Scene, revision: str) -> tuple[Collection, str, dict[str, object]]:
    """Return the item of a revision, and what can be written back of it."""
    catalogue = scene.snapshot.catalogue
    key = parse_key(catalogue.collections[REVISIONS], revision)
    rows = _by_key(store, scene, catalogue.collections[REVISIONS], ("collection", "item", "data"), key=key)
    collection = catalogue.collections.get(rows[0]["collection"]) if rows else None
    data: Any = jsontext.stored(jsontext.dumps(rows[0]["data"])) if rows else None
    if collection is None or not isinstance(data, dict) or int(key) <= collection.last_of_others.get(REVISIONS, 0):
        raise not_found("revision")
    payload = {name: value for name, value in data.items() if _goes_back(collection, collection.fields.get(name))}
    return collection, rows[0]["item"], payload


def _goes_back(collection: Collection, field: Field | None) -> bool:
    if field is None or field.column is None or field.column.generated:
        return False
    return field.name != collection.primary_key and not field.secret and not _STAMPED.intersection(field.special)


def _by_key(store: Store, scene: Scene, collection: Collection, names: tuple[str, ...], *, key: str) -> list[Item]:
    picks = tuple(Pick(name, Name(name)) for name in names)
    query = by_key(Query(picks=picks), Slot(0))
    found = statement_for(store, scene, collection.name, query)
    context = Context((key,), scene.actor.user, scene.actor.role)
    rows = scene.fetch(found.text, bound(found.values, context))
    check_version(scene.snapshot, found.version(rows))
    return found.items(rows)
