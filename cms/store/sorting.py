"""Manual sorting: an item takes the place of another (decisions, section 4: a collection's sort field)."""

from __future__ import annotations

from collections.abc import Mapping

from cms.access.guard import writable
from cms.errors import Problem, Refused, invalid_payload, not_found, shown
from cms.fragment import Fragment, commas, param
from cms.query import locks, manual
from cms.schema.model import Collection, Field
from cms.store.database import Transaction
from cms.store.judging import Judge
from cms.store.once import Once
from cms.store.reads import parse_key
from cms.store.rows import author
from cms.store.store import Identity, Job, Scene, Store

_WHOLE = frozenset({"integer", "bigInteger"})


def move_item(
    store: Store, identity: Identity, name: str, payload: Mapping[str, object], *, once: Once | None = None
) -> None:
    """Move `item` to the place of `to`; those between them close up.

    It takes the right to change the sort field of both; those between move whoever may change them. Raises
    `Refused`: INVALID_PAYLOAD for a collection without a sort field of whole numbers, NOT_FOUND for an item
    that is not there.
    """

    def work(transaction: Transaction, scene: Scene) -> None:
        catalogue, policy = scene.snapshot.catalogue, scene.actor.policy
        collection = writable(name, catalogue=catalogue, policy=policy, actions=("update",))
        if collection.singleton:
            raise not_found()
        sort, keys = _sort_field(collection), _keys(collection, payload)
        judge = Judge(store, scene, transaction.execute)
        judge.permit_column(collection, keys, sort.name, transaction.execute)
        who = zip(author(scene, identity.caller), ("uuid", "text", "text", "text"), strict=True)
        _move(transaction, collection, sort, keys, author=commas(param(value, cast) for value, cast in who))

    store.writing(identity, lambda scene: Job(lambda transaction: work(transaction, scene)), once=once)


def _sort_field(collection: Collection) -> Field:
    field = collection.fields[collection.sort_field] if collection.sort_field else None
    if field is None or field.type_name not in _WHOLE:
        raise invalid_payload(f'"{collection.name}" has no sort field of whole numbers', collection=collection.name)
    return field


def _sent(payload: Mapping[str, object], name: str) -> dict[str, object]:
    return {"value": shown(payload[name])} if name in payload else {}


def _keys(collection: Collection, payload: Mapping[str, object]) -> tuple[str, str]:
    problems = [
        invalid_payload(f'"{name}" must be the key of an item', field=name, **_sent(payload, name)).problems[0]
        for name in ("item", "to")
        if not isinstance(payload.get(name), str | int) or isinstance(payload[name], bool)
    ]
    problems += [
        Problem("INVALID_PAYLOAD", f'Invalid payload. There is no "{name}".', {"field": name})
        for name in payload.keys() - {"item", "to"}
    ]
    if problems:
        raise Refused(problems)
    return parse_key(collection, payload["item"]), parse_key(collection, payload["to"])


def _move(
    transaction: Transaction, collection: Collection, sort: Field, keys: tuple[str, str], *, author: Fragment
) -> None:
    """Move one item at a time in a collection; items that cannot be told apart by their place are numbered first."""
    item, to = keys
    transaction.run(locks.lock_of(collection))
    source, target = (_place(transaction, collection, sort, key) for key in (item, to))
    low, high = sorted((source or "0", target or "0"), key=int)
    if transaction.run(manual.is_muddled(collection, sort, low, high))[0][0]:
        transaction.run(manual.number(collection, sort, author=author))
        source, target = (_place(transaction, collection, sort, key) for key in (item, to))
    if source is not None and target is not None and source != target:
        transaction.run(manual.move(collection, sort, key=item, way=(source, target), author=author))


def _place(transaction: Transaction, collection: Collection, sort: Field, key: str) -> str | None:
    rows = transaction.run(manual.place(collection, sort, key))
    if not rows:
        raise not_found()
    return None if rows[0][0] is None else str(rows[0][0])
