"""Writes of items: everything in one call is one transaction, and rows travel in sets (decisions, section 5)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from cms import jsontext
from cms.access.guard import writable
from cms.errors import invalid_payload, not_found
from cms.query import write
from cms.query.ast import KEY, At, Name, Pick, Query, Slot, Test
from cms.query.bind import Context, bound
from cms.query.parse import PARAMETERS, Page, parse, parse_query_string
from cms.schema.model import Collection
from cms.schema.payload import Values, Writer, values_of_change, values_of_new
from cms.store.database import Transaction
from cms.store.matching import check_match
from cms.store.once import Once
from cms.store.reads import Item, parse_key, statement_for
from cms.store.statements import statement
from cms.store.store import Identity, Scene, Store

_EVERY_ROW = Page(default=None)


def create(
    store: Store, identity: Identity, ask: tuple[str, str], payload: object, *, once: Once | None = None
) -> bytes:
    """Create one item, or several of an array, and answer them as the query string asks."""
    name, query_string = ask

    def work(transaction: Transaction, scene: Scene) -> bytes:
        collection = _writable(scene, name, singleton=False)
        items = payload if isinstance(payload, list) else [payload]
        keys = _insert(transaction, collection, values_of_new(collection, items, _writer(scene)))
        found = _read_back(store, transaction, scene, collection, keys, query_string=query_string)
        return jsontext.dumps({"data": found if isinstance(payload, list) else found[0]})

    return store.writing(identity, work, once=once)


def update_one(
    store: Store,
    identity: Identity,
    ask: tuple[str, str],
    *,
    key: str,
    payload: object,
    if_match: str | None = None,
) -> bytes:
    """Change one item; raises `Refused` NOT_FOUND when there is none for this caller."""
    name, query_string = ask

    def work(transaction: Transaction, scene: Scene) -> bytes:
        collection = _writable(scene, name, singleton=False)
        parsed_key = parse_key(collection, key)
        check_match(store, transaction, scene, collection, key=parsed_key, if_match=if_match)
        keys = _change(transaction, scene, collection, [parsed_key], payload)
        found = _read_back(store, transaction, scene, collection, keys, query_string=query_string)
        return jsontext.dumps({"data": found[0]})

    return store.writing(identity, work)


def update_many(store: Store, identity: Identity, ask: tuple[str, str], payload: object) -> bytes:
    """Change items by an array of objects with their keys, by `keys` and `data`, or by `query` and `data`.

    On a singleton the payload is the object itself, which is made when it is not there.
    """
    name, query_string = ask

    def work(transaction: Transaction, scene: Scene) -> bytes:
        collection = _writable(scene, name)
        if collection.singleton:
            keys = _put_singleton(transaction, scene, collection, payload)
            found = _read_back(store, transaction, scene, collection, keys, query_string=query_string)
            return jsontext.dumps({"data": found[0]})
        keys = _change_many(store, transaction, scene, collection, payload)
        return jsontext.dumps(
            {"data": _read_back(store, transaction, scene, collection, keys, query_string=query_string)}
        )

    return store.writing(identity, work)


def delete_one(store: Store, identity: Identity, collection: str, *, key: str, if_match: str | None = None) -> None:
    """Delete one item."""

    def work(transaction: Transaction, scene: Scene) -> None:
        found = _writable(scene, collection, singleton=False)
        parsed_key = parse_key(found, key)
        check_match(store, transaction, scene, found, key=parsed_key, if_match=if_match)
        _delete(transaction, found, [parsed_key])

    store.writing(identity, work)


def delete_many(store: Store, identity: Identity, collection: str, payload: object) -> None:
    """Delete items by an array of keys, by `keys`, or by `query`."""

    def work(transaction: Transaction, scene: Scene) -> None:
        found = _writable(scene, collection, singleton=False)
        given = payload if isinstance(payload, Mapping) else {"keys": payload}
        _delete(transaction, found, _named(store, transaction, scene, found, given))

    store.writing(identity, work)


def _writable(scene: Scene, name: str, *, singleton: bool | None = None) -> Collection:
    """Return the collection; one that is a singleton has no items to create or to name by key."""
    found = writable(name, catalogue=scene.snapshot.catalogue, policy=scene.actor.policy)
    if found.singleton and singleton is False:
        raise not_found()
    return found


def _writer(scene: Scene) -> Writer:
    actor = scene.actor
    return Writer.now(actor.user, actor.role, admin=actor.policy.admin)


# Rows in


def _insert(transaction: Transaction, collection: Collection, rows: Sequence[Values]) -> list[str]:
    """Insert rows, those with the same columns in one statement, and return the keys in the rows' order."""
    keys: dict[int, str] = {}
    groups = _alike(rows)
    if len(groups) > 1:
        groups = _alike(rows := _numbered(transaction, collection, rows))
    for names, places in groups.items():
        columns = [collection.fields[name] for name in names]
        matrix = [[rows[place][name] for name in names] for place in places]
        returned = transaction.run(write.insert(collection, columns, matrix))
        if len(returned) != len(places):  # a trigger of the table may turn rows away
            raise invalid_payload("The database did not take every item", collection=collection.name)
        keys.update(zip(places, (key for (key,) in returned), strict=True))
    return [keys[place] for place in range(len(rows))]


def _numbered(transaction: Transaction, collection: Collection, rows: Sequence[Values]) -> Sequence[Values]:
    """Give rows that go in by several statements their automatic keys beforehand, in the order of the rows."""
    key = collection.fields[str(collection.primary_key)]
    if not key.column or not key.column.auto_increment or key.column.generated:
        return rows
    bare = [place for place, row in enumerate(rows) if row.get(key.name) is None]
    found = transaction.execute(statement("next_keys"), (collection.name, key.name, str(len(bare))))
    numbers = dict(zip(bare, (number for (number,) in found), strict=False))
    return [{**row, key.name: numbers[place]} if place in numbers else row for place, row in enumerate(rows)]


def _alike(rows: Sequence[Values]) -> dict[tuple[str, ...], list[int]]:
    """Group the places of rows by their columns: a column that is not named gets its default."""
    groups: dict[tuple[str, ...], list[int]] = {}
    for place, row in enumerate(rows):
        groups.setdefault(tuple(sorted(row)), []).append(place)
    return groups


def _change_many(
    store: Store, transaction: Transaction, scene: Scene, collection: Collection, payload: object
) -> list[str]:
    if isinstance(payload, list):
        return _change_each(transaction, scene, collection, payload)
    if not isinstance(payload, Mapping) or "data" not in payload:
        raise invalid_payload("The body must be an array of items with their keys, or hold data with keys or query")
    keys = _named(store, transaction, scene, collection, payload)
    return _change(transaction, scene, collection, keys, payload["data"])


def _change(
    transaction: Transaction, scene: Scene, collection: Collection, keys: list[str], payload: object
) -> list[str]:
    """Give all items of the keys the same values."""
    values = values_of_change(collection, [payload], _writer(scene))[0]
    key = str(collection.primary_key)
    if values.pop(key, None) not in (None, *keys) or (len(keys) > 1 and _names_key(payload, key)):
        raise invalid_payload("The primary key of an item cannot be changed", field=key)
    return _update(transaction, collection, [{key: found, **values} for found in keys])


def _names_key(payload: object, key: str) -> bool:
    return isinstance(payload, Mapping) and key in payload


def _change_each(transaction: Transaction, scene: Scene, collection: Collection, payload: list[object]) -> list[str]:
    key = str(collection.primary_key)
    rows = values_of_change(collection, payload, _writer(scene))
    keys = [row.get(key) for row in rows]
    if None in keys:
        raise invalid_payload(f'Each item must hold its primary key "{key}"', field=key)
    if len(set(keys)) < len(keys):
        raise invalid_payload("An item is there twice", field=key)
    return _update(transaction, collection, rows)


def _update(transaction: Transaction, collection: Collection, rows: Sequence[Values]) -> list[str]:
    """Change rows, those with the same columns in one statement; one unknown key refuses them all.

    Returns the keys in the rows' order, as PostgreSQL writes them.
    """
    key = str(collection.primary_key)
    keys: dict[int, str] = {}
    for names, places in _alike(rows).items():
        columns = [collection.fields[key], *(collection.fields[name] for name in names if name != key)]
        matrix = [[rows[place][field.name] for field in columns] for place in places]
        if len(columns) == 1:
            found = transaction.run(write.present(collection, matrix))
        else:
            found = transaction.run(write.update(collection, columns, matrix))
        if len(found) < len(places):
            raise not_found()
        keys.update((places[number - 1], text) for number, text in found)
    return [keys[place] for place in range(len(rows))]


def _put_singleton(transaction: Transaction, scene: Scene, collection: Collection, payload: object) -> list[str]:
    transaction.run(write.lock_of(collection))
    present = transaction.run(write.first(collection))
    if present:
        return _change(transaction, scene, collection, [str(key) for (key,) in present], payload)
    return _insert(transaction, collection, values_of_new(collection, [payload], _writer(scene)))


def _delete(transaction: Transaction, collection: Collection, keys: list[str]) -> None:
    if len(transaction.run(write.delete(collection, keys))) < len(keys):
        raise not_found()


# Keys


def _named(
    store: Store, transaction: Transaction, scene: Scene, collection: Collection, payload: Mapping[str, object]
) -> list[str]:
    """Return the keys of the items that a batch names: by `keys` or by `query`, and never by both."""
    if len({"keys", "query"} & payload.keys()) != 1:
        raise invalid_payload("It takes either keys or query", field="keys")
    if "keys" in payload:
        return _keys(collection, payload["keys"])
    return _keys_by_query(store, transaction, scene, collection, payload["query"])


def _keys(collection: Collection, given: object) -> list[str]:
    """Return the keys of a batch, each once."""
    if not isinstance(given, list) or any(isinstance(key, dict | list) or key is None for key in given):
        raise invalid_payload("keys must be an array of primary keys", field="keys")
    return list(dict.fromkeys(parse_key(collection, key) for key in given))


def _keys_by_query(
    store: Store, transaction: Transaction, scene: Scene, collection: Collection, params: object
) -> list[str]:
    """Return the keys of the items that a query finds; no default limit applies to it."""
    if not isinstance(params, Mapping):
        raise invalid_payload("query must be an object", field="query")
    for name in params.keys() - PARAMETERS:  # a misspelt filter would otherwise change every row
        raise invalid_payload(f'query does not take "{name}"; there are {", ".join(sorted(PARAMETERS))}', field="query")
    said = parse(params, _EVERY_ROW)
    query = replace(said.query, picks=(_key_pick(collection),), aggregates=(), groups=(), counts=())
    items = _select(store, transaction, scene, collection, query, literals=said.literals)
    return [str(item[KEY]) for item in items]


def _key_pick(collection: Collection) -> Pick:
    return Pick(KEY, Name(str(collection.primary_key)))


# Rows out


def _read_back(
    store: Store,
    transaction: Transaction,
    scene: Scene,
    collection: Collection,
    keys: list[str],
    *,
    query_string: str,
) -> list[Item]:
    """Return the items of the keys, in that order, as this caller may read them."""
    if not keys:
        return []
    said = parse_query_string(query_string, store.page)
    narrowed = At(Name(str(collection.primary_key)), Test("_in", (Slot(len(said.literals)),)))
    query = Query(picks=(*said.query.picks, _key_pick(collection)), deep=said.query.deep, filter=narrowed)
    items = _select(store, transaction, scene, collection, query, literals=(*said.literals, tuple(keys)))
    by_key = {str(item.pop(KEY)): item for item in items}
    if len(by_key) < len(keys):  # a trigger of the table may have moved or removed them
        raise not_found()
    return [by_key[key] for key in keys]


def _select(
    store: Store,
    transaction: Transaction,
    scene: Scene,
    collection: Collection,
    query: Query,
    *,
    literals: tuple[object, ...],
) -> list[Item]:
    found = statement_for(store, scene, collection.name, query)
    context = Context(literals, scene.actor.user, scene.actor.role)
    return found.items(transaction.execute(found.text, bound(found.values, context)))
