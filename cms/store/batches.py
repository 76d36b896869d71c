"""Several operations on items of several collections in one transaction (docs/batch.md)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from cms import jsontext
from cms.access.endpoints import require_open
from cms.errors import Refused, invalid_payload
from cms.memory import note_use
from cms.query.operations import Operation, Results, parse_operations, placed
from cms.query.parse import parse
from cms.schema.model import Collection
from cms.store.allowance import Allowance
from cms.store.calls import (
    CHANGE,
    CREATE,
    DELETE,
    PUT,
    Aim,
    Call,
    Written,
    call_on,
    plan_change,
    plan_each,
    plan_named,
    plan_new,
    plan_removal,
    plan_removals,
    plan_singleton,
)
from cms.store.database import Transaction
from cms.store.matching import check_match, check_singleton
from cms.store.once import Once
from cms.store.reads import Ask, parse_key
from cms.store.rows import lock_rows
from cms.store.store import Identity, Job, Scene, Store
from cms.store.within import read

_TOUCH = Aim(("update", "delete"))


def run_batch(store: Store, identity: Identity, payload: object, *, most: int, once: Once | None = None) -> bytes:
    """Do the operations of a body, each as a call of its own would, all of them or none; answer what each has answered.

    `most` is how many bytes references may bring in. Raises `Refused` with the place of the operation.
    """
    operations = parse_operations(payload)

    def plan(scene: Scene) -> Job[bytes]:
        def within(transaction: Transaction) -> bytes:
            allowance = Allowance(store.statement_timeout, store.max_answer_size)
            transaction = replace(transaction, allowance=allowance)
            held = replace(scene, fetch=transaction.execute)
            return _run(_Batch(store, held, identity, transaction), operations, Results(most))

        return Job(within)

    return store.writing(identity, plan, once=once)


@dataclass(frozen=True, slots=True)
class _Batch:
    """A batch under way: all of it by the structure and rights that it began with."""

    store: Store
    scene: Scene
    identity: Identity
    transaction: Transaction


def _run(batch: _Batch, operations: Sequence[Operation], results: Results) -> bytes:
    _hold(batch, operations)
    answers = []
    for place, operation in enumerate(operations):
        try:
            answers.append(_answered(batch, operation, results))
        except Refused as refused:
            raise refused.each(partial(placed, operation=place)) from refused
    return jsontext.dumps({"data": answers})


def _answered(batch: _Batch, operation: Operation, results: Results) -> object:
    """Return the answer of an operation as ready JSON, which takes a fraction of the memory that its values take."""
    answer = jsontext.dumps(_done(batch, operation, results))
    note_use(len(answer))
    assert batch.transaction.allowance
    batch.transaction.allowance.take(len(answer))
    results.keep(operation, answer)
    return jsontext.ready(answer)


def _hold(batch: _Batch, operations: Sequence[Operation]) -> None:
    """Hold the rows that are named by key, in one order for everybody: batches over the same rows do not deadlock then.

    What is wrong with an operation is told when its turn comes.
    """
    for name in sorted({operation.collection for operation in operations}):
        try:
            call = _call(batch, name, _TOUCH)
            given = [key for one in operations if one.collection == name for key in _keys_of(one, call.collection)]
            keys = [parse_key(call.collection, key) for key in given if isinstance(key, str | int)]
        except Refused:
            continue
        if keys:
            lock_rows(call.session(batch.transaction), call.collection, keys)


def _keys_of(operation: Operation, collection: Collection) -> list[object]:
    """Return the keys of rows that an operation writes; references among them are not known yet."""
    if operation.method == "read":
        return []
    keys, data = operation.said.get("keys", operation.said.get("key")), operation.said.get("data")
    items = data if isinstance(data, list) else []
    within = [item.get(collection.primary_key) for item in items if isinstance(item, dict)]
    return [*within, *(keys if isinstance(keys, list) else [keys])]


def _done(batch: _Batch, operation: Operation, results: Results) -> object:
    try:
        said = results.filled(operation.said)
    except RecursionError:
        raise invalid_payload("It is nested too deeply") from None
    if "key" in said and (said["key"] is None or isinstance(said["key"], dict | list)):
        raise invalid_payload('"key" must be a primary key', field="key")
    operation = Operation(operation.method, operation.collection, operation.id, said)
    return _ACTIONS[operation.method](batch, operation)


def _call(batch: _Batch, collection: str, aim: Aim, shape: Mapping[str, object] | None = None) -> Call:
    require_open(collection, batch.scene.actor.policy)
    ask = collection, parse(shape or {}, batch.store.page)
    return call_on(batch.store, batch.scene, batch.identity.caller, ask, aim)


def _create(batch: _Batch, operation: Operation) -> object:
    data = operation.said["data"]
    items = data if isinstance(data, list) else [data]
    found = plan_new(_call(batch, operation.collection, CREATE, operation.shape), items).within(batch.transaction)
    return found if isinstance(data, list) else _only(found)


def _read(batch: _Batch, operation: Operation) -> object:
    require_open(operation.collection, batch.scene.actor.policy)
    params = operation.said.get("query", {})
    if not isinstance(params, dict):
        raise invalid_payload("query must be an object", field="query")
    ask = Ask(operation.collection, params=params)
    return read(batch.store, batch.transaction, batch.scene, ask, key=operation.said.get("key"))


def _update(batch: _Batch, operation: Operation) -> object:
    said, transaction = operation.said, batch.transaction
    data, named = said["data"], bool(said.keys() & {"key", "keys", "query"})
    aim = CHANGE if named or isinstance(data, list) else PUT
    call = _call(batch, operation.collection, aim, operation.shape)
    if "key" in said:
        return _only(plan_change(call, _matched(batch, call, said), data).within(transaction))
    if named:
        return plan_named(call, said).within(transaction)
    if isinstance(data, list):
        return plan_each(call, data).within(transaction)
    if not call.collection.singleton:
        raise invalid_payload("It takes key, keys or query, or an array of items with their keys", field="key")
    if_match: Any = said.get("if_match")
    check_singleton(batch.store, transaction, batch.scene, call.collection, if_match=if_match)
    return _only(plan_singleton(call, data).within(transaction))


def _delete(batch: _Batch, operation: Operation) -> None:
    call = _call(batch, operation.collection, DELETE)
    if "key" in operation.said:
        plan_removal(call, _matched(batch, call, operation.said)).within(batch.transaction)
    else:
        plan_removals(call, operation.said).within(batch.transaction)


def _matched(batch: _Batch, call: Call, said: Mapping[str, Any]) -> str:
    """Return the key of an operation's item, which is the one that `if_match` names, where it is there."""
    key = parse_key(call.collection, said["key"])
    check_match(batch.store, batch.transaction, batch.scene, call.collection, key=key, if_match=said.get("if_match"))
    return key


def _only(found: Written) -> object:
    return found[0] if found else None


_ACTIONS = {"create": _create, "read": _read, "update": _update, "delete": _delete}
