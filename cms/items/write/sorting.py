"""Manual sorting: an item takes the place of another (decisions, section 4: a collection's sort field)."""

from __future__ import annotations

from collections.abc import Mapping

from cms.access.guard import writable_collection
from cms.database.connections import Transaction
from cms.errors import Problem, Refused, abbreviated, invalid_payload, not_found
from cms.fragment import Fragment, commas, param
from cms.items.read.reads import parse_key
from cms.items.write.authorizing import WriteAuthorizer
from cms.items.write.rows import author
from cms.query.sql import locks, sorting
from cms.schema.model import Collection, Field
from cms.store.context import RequestContext
from cms.store.idempotency import Idempotency
from cms.store.identity import Identity
from cms.store.store import Store, WritePlan

_WHOLE = frozenset({"integer", "bigInteger"})


def move_item(
    store: Store,
    identity: Identity,
    name: str,
    payload: Mapping[str, object],
    *,
    idempotency: Idempotency | None = None,
) -> None:
    """Move `item` to the place of `to`; those between them close up.

    It takes the right to change the sort field of both; those between move whoever may change them. Raises
    `Refused`: INVALID_PAYLOAD for a collection without a sort field of whole numbers, NOT_FOUND for an item
    that is not there.
    """

    def work(transaction: Transaction, context: RequestContext) -> None:
        catalogue, policy = context.snapshot.catalogue, context.actor.policy
        collection = writable_collection(
            name, catalogue=catalogue, policy=policy, actions=("update",)
        )
        if collection.is_singleton:
            raise not_found()
        sort, keys = _sort_field(collection), _keys(collection, payload)
        authorizer = WriteAuthorizer(store, context)
        authorizer.authorize_column(collection, keys, sort.name, transaction.execute)
        who = zip(author(context, identity.client), ("uuid", "text", "text", "text"), strict=True)
        _move(
            transaction,
            collection,
            sort,
            keys,
            author=commas(param(value, cast) for value, cast in who),
        )

    store.run_write(
        identity,
        lambda context: WritePlan(lambda transaction: work(transaction, context)),
        idempotency=idempotency,
    )


def _sort_field(collection: Collection) -> Field:
    field = collection.fields[collection.sort_field] if collection.sort_field else None
    if field is None or field.type_name not in _WHOLE:
        raise invalid_payload(
            f'"{collection.name}" has no sort field of whole numbers', collection=collection.name
        )
    return field


def _sent(payload: Mapping[str, object], name: str) -> dict[str, object]:
    return {"value": abbreviated(payload[name])} if name in payload else {}


def _keys(collection: Collection, payload: Mapping[str, object]) -> tuple[str, str]:
    problems = [
        invalid_payload(
            f'"{name}" must be the key of an item', field=name, **_sent(payload, name)
        ).problems[0]
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
    transaction: Transaction,
    collection: Collection,
    sort: Field,
    keys: tuple[str, str],
    *,
    author: Fragment,
) -> None:
    """Move one item at a time in a collection; items that cannot be told apart by their place are numbered first."""
    item, to = keys
    transaction.run(locks.lock_singleton(collection))
    source, target = (_position(transaction, collection, sort, key) for key in (item, to))
    low, high = sorted((source or "0", target or "0"), key=int)
    if transaction.run(sorting.has_ambiguous_order(collection, sort, low, high))[0][0]:
        transaction.run(sorting.renumber(collection, sort, author=author))
        source, target = (_position(transaction, collection, sort, key) for key in (item, to))
    if source is not None and target is not None and source != target:
        transaction.run(
            sorting.move(collection, sort, key=item, source=source, target=target, author=author)
        )


def _position(
    transaction: Transaction, collection: Collection, sort: Field, key: str
) -> str | None:
    rows = transaction.run(sorting.position_of(collection, sort, key))
    if not rows:
        raise not_found()
    return None if rows[0][0] is None else str(rows[0][0])
