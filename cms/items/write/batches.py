"""Several operations on items of several collections in one transaction (docs/batch.md)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from cms import jsontext
from cms.access.endpoints import require_not_system
from cms.database.allowance import Allowance
from cms.database.connections import Transaction
from cms.errors import Refused, invalid_payload
from cms.items.read.prepare import ReadRequest
from cms.items.read.reads import parse_key
from cms.items.write.calls import (
    CHANGE,
    CREATE,
    DELETE,
    PUT,
    WriteCall,
    WriteIntent,
    WrittenItems,
    new_call,
)
from cms.items.write.plans import (
    plan_create,
    plan_delete,
    plan_delete_many,
    plan_singleton,
    plan_update,
    plan_update_each,
    plan_update_many,
)
from cms.items.write.preconditions import check_match, check_singleton
from cms.items.write.rows import lock_rows
from cms.items.write.transaction_reads import read
from cms.memory import note_memory_use
from cms.query.language.operations import (
    Operation,
    OperationResults,
    in_operation,
    parse_operations,
)
from cms.query.language.parse import parse
from cms.schema.model import Collection
from cms.store.context import RequestContext
from cms.store.idempotency import Idempotency
from cms.store.identity import Identity
from cms.store.store import Store, WritePlan

_LOCK_ROWS = WriteIntent(("update", "delete"))


def run_batch(
    store: Store,
    identity: Identity,
    payload: object,
    *,
    max_bytes: int,
    idempotency: Idempotency | None = None,
) -> bytes:
    """Do the operations of a body, each as a call of its own would, all of them or none; answer what each has answered.

    `max_bytes` is how many bytes references may bring in. Raises `Refused` with the place of the operation.
    """
    operations = parse_operations(payload)

    def plan(context: RequestContext) -> WritePlan[bytes]:
        def within(transaction: Transaction) -> bytes:
            allowance = Allowance(store.statement_timeout, store.max_answer_size)
            transaction = replace(transaction, allowance=allowance)
            held = replace(context, fetch=transaction.execute)
            return _run(
                _BatchRun(store, held, identity, transaction),
                operations,
                OperationResults(max_bytes),
            )

        return WritePlan(within)

    return store.run_write(identity, plan, idempotency=idempotency)


@dataclass(frozen=True, slots=True)
class _BatchRun:
    """A batch under way: all of it by the structure and rights that it began with."""

    store: Store
    context: RequestContext
    identity: Identity
    transaction: Transaction


def _run(batch: _BatchRun, operations: Sequence[Operation], results: OperationResults) -> bytes:
    _lock_rows_by_key(batch, operations)
    answers = []
    for place, operation in enumerate(operations):
        try:
            answers.append(_ready_answer(batch, operation, results))
        except Refused as refused:
            raise refused.map_problems(partial(in_operation, operation=place)) from refused
    return jsontext.dumps({"data": answers})


def _ready_answer(batch: _BatchRun, operation: Operation, results: OperationResults) -> object:
    """Return the answer of an operation as ready JSON, which takes a fraction of the memory that its values take."""
    answer = jsontext.dumps(_run_operation(batch, operation, results))
    note_memory_use(len(answer))
    assert batch.transaction.allowance
    batch.transaction.allowance.take(len(answer))
    results.add_answer(operation, answer)
    return jsontext.raw_json(answer)


def _lock_rows_by_key(batch: _BatchRun, operations: Sequence[Operation]) -> None:
    """Hold the rows that are named by key, in one order for everybody: batches over the same rows do not deadlock then.

    What is wrong with an operation is told when its turn comes.
    """
    for name in sorted({operation.collection for operation in operations}):
        try:
            call = _call(batch, name, _LOCK_ROWS)
            given = [
                key
                for one in operations
                if one.collection == name
                for key in _keys_of(one, call.collection)
            ]
            keys = [parse_key(call.collection, key) for key in given if isinstance(key, str | int)]
        except Refused:
            continue
        if keys:
            lock_rows(call.write_context(batch.transaction), call.collection, keys)


def _keys_of(operation: Operation, collection: Collection) -> list[object]:
    """Return the keys of rows that an operation writes; references among them are not known yet."""
    if operation.method == "read":
        return []
    keys, data = (
        operation.arguments.get("keys", operation.arguments.get("key")),
        operation.arguments.get("data"),
    )
    items = data if isinstance(data, list) else []
    within = [item.get(collection.primary_key) for item in items if isinstance(item, dict)]
    return [*within, *(keys if isinstance(keys, list) else [keys])]


def _run_operation(batch: _BatchRun, operation: Operation, results: OperationResults) -> object:
    try:
        said = results.resolve_references(operation.arguments)
    except RecursionError:
        raise invalid_payload("It is nested too deeply") from None
    if "key" in said and (said["key"] is None or isinstance(said["key"], dict | list)):
        raise invalid_payload('"key" must be a primary key', field="key")
    operation = Operation(operation.method, operation.collection, operation.id, said)
    return _ACTIONS[operation.method](batch, operation)


def _call(
    batch: _BatchRun,
    collection: str,
    intent: WriteIntent,
    shape: Mapping[str, object] | None = None,
) -> WriteCall:
    require_not_system(collection, batch.context.actor.policy)
    parsed = parse(shape or {}, batch.store.page)
    return new_call(
        batch.store,
        batch.context,
        batch.identity.client,
        name=collection,
        parsed=parsed,
        intent=intent,
    )


def _create(batch: _BatchRun, operation: Operation) -> object:
    data = operation.arguments["data"]
    items = data if isinstance(data, list) else [data]
    found = plan_create(
        _call(batch, operation.collection, CREATE, operation.output_params), items
    ).within(batch.transaction)
    return found if isinstance(data, list) else _single_item(found)


def _read(batch: _BatchRun, operation: Operation) -> object:
    require_not_system(operation.collection, batch.context.actor.policy)
    params = operation.arguments.get("query", {})
    if not isinstance(params, dict):
        raise invalid_payload("query must be an object", field="query")
    ask = ReadRequest(operation.collection, params=params)
    return read(
        batch.store, batch.transaction, batch.context, ask, key=operation.arguments.get("key")
    )


def _update(batch: _BatchRun, operation: Operation) -> object:
    said, transaction = operation.arguments, batch.transaction
    data, named = said["data"], bool(said.keys() & {"key", "keys", "query"})
    intent = CHANGE if named or isinstance(data, list) else PUT
    call = _call(batch, operation.collection, intent, operation.output_params)
    if "key" in said:
        return _single_item(
            plan_update(call, _checked_key(batch, call, said), data).within(transaction)
        )
    if named:
        return plan_update_many(call, said).within(transaction)
    if isinstance(data, list):
        return plan_update_each(call, data).within(transaction)
    if not call.collection.is_singleton:
        raise invalid_payload(
            "It takes key, keys or query, or an array of items with their keys", field="key"
        )
    if_match: Any = said.get("if_match")
    check_singleton(batch.store, transaction, batch.context, call.collection, if_match=if_match)
    return _single_item(plan_singleton(call, data).within(transaction))


def _delete(batch: _BatchRun, operation: Operation) -> None:
    call = _call(batch, operation.collection, DELETE)
    if "key" in operation.arguments:
        plan_delete(call, _checked_key(batch, call, operation.arguments)).within(batch.transaction)
    else:
        plan_delete_many(call, operation.arguments).within(batch.transaction)


def _checked_key(batch: _BatchRun, call: WriteCall, said: Mapping[str, Any]) -> str:
    """Return the key of an operation's item, which is the one that `if_match` names, where it is there."""
    key = parse_key(call.collection, said["key"])
    check_match(
        batch.store,
        batch.transaction,
        batch.context,
        call.collection,
        key=key,
        if_match=said.get("if_match"),
    )
    return key


def _single_item(found: WrittenItems) -> object:
    return found[0] if found else None


_ACTIONS = {"create": _create, "read": _read, "update": _update, "delete": _delete}
