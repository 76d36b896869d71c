"""Several operations on items of several collections in one transaction (docs/batch.md)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from cms import jsontext
from cms.access.guard import require_not_system
from cms.database.allowance import Allowance
from cms.database.connections import Transaction
from cms.errors import Inquiry, Problem, Refused, invalid_payload
from cms.items.read.prepare import ReadRequest
from cms.items.read.reads import parse_key
from cms.items.write import item_writes
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
from cms.items.write.transaction.executor import Executor
from cms.items.write.transaction.named_keys import require_query
from cms.items.write.transaction.preconditions import check_match, check_singleton
from cms.items.write.transaction.rows import lock_rows, with_exchange
from cms.processes.memory import note_memory_use
from cms.query.language.operations import (
    NAMING_FIELDS,
    BatchOperation,
    OperationResults,
    in_operation,
    parse_operations,
)
from cms.query.language.parse import parse_answer
from cms.schema.keys import may_be_key, sent_key
from cms.schema.model import Collection
from cms.store.context import RequestContext
from cms.store.idempotency import Idempotency
from cms.store.identity import Identity
from cms.store.refusals import RunQuestion
from cms.store.store import Store
from cms.store.write_attempts import PartOfTransaction, Write

_LOCK_ROWS = WriteIntent(("update", "delete"))
_CODES_OF_OTHER_ROWS = frozenset({"INVALID_FOREIGN_KEY", "RECORD_NOT_UNIQUE"})
"""The intent of a call that only locks rows, before the operations run."""


def run_batch(
    store: Store,
    identity: Identity,
    payload: object,
    *,
    max_bytes: int,
    idempotency: Idempotency | None = None,
) -> bytes:
    """Run the operations of a body, each like a call of its own, all of them or none.

    Returns the answers of all operations. `max_bytes` is how many bytes references may bring in.
    Raises `Refused` with the number of the operation.
    """
    # [{"id": "a", "method": "create", "collection": "authors", "data": {"name": "Ada"}},
    #  {"method": "delete", "collection": "drafts", "key": {"$result": "a.draft"}}]
    operations = parse_operations(payload)
    write: Write[bytes] = store.write(identity, idempotency=idempotency)
    for attempt in write:
        with attempt as context:
            # One allowance for all operations: together they are one answer. Its time begins here,
            # so that a repeated attempt has all of it again.
            allowance = Allowance(store.statement_timeout, store.max_answer_size)
            transaction = replace(attempt.begin_transaction(), allowance=allowance)
            # Each operation is planned only when its turn comes, and must see the ones before it.
            in_transaction = context._replace(fetch=transaction.execute)
            results = OperationResults(max_bytes)
            batch = _BatchRun(store, in_transaction, identity, transaction, results)
            write.answer = _run_batch(batch, operations)
    return write.answer


def _run_batch(batch: _BatchRun, operations: Sequence[BatchOperation]) -> bytes:
    _lock_rows_by_key(batch, operations)
    answers = []
    for number, operation in enumerate(operations):
        try:
            answers.append(_json_answer(batch, operation))
        except Refused as refused:
            if number and refused.inquiry:
                refused.inquiry = partial(_problems_of_values, refused.inquiry)
            if len(operations) > 1 and operation.method == "update":
                refused = refused.map_problems(with_exchange)
            raise refused.map_problems(partial(in_operation, operation=number)) from refused
    return jsontext.dumps({"data": answers})


def _problems_of_values(inquiry: Inquiry, run_question: RunQuestion) -> list[Problem]:
    """Return what an inquiry finds wrong with values, but not with references and unique values.

    It asks when the batch is undone: the rows of earlier operations, which these are about, are as
    they were before.
    """
    problems = inquiry(run_question)
    return [problem for problem in problems if problem.code not in _CODES_OF_OTHER_ROWS]


@dataclass(frozen=True, slots=True)
class _BatchRun:
    """A batch under way.

    All operations use the structure and rights with which the batch began, even after an operation
    has changed rights. `results` are the answers so far, to which later operations refer.
    """

    store: Store
    context: RequestContext
    identity: Identity
    transaction: Transaction
    results: OperationResults

    @property
    def executor(self) -> Executor:
        return Executor(self.store, self.context, self.transaction, self.identity.client)


def _json_answer(batch: _BatchRun, operation: BatchOperation) -> object:
    """Return the answer of an operation as JSON, which takes less memory than its values."""
    answer = jsontext.dumps(_run_operation(batch, operation))
    note_memory_use(len(answer))
    assert batch.transaction.allowance
    # Refused before the next operation runs, and not when all answers are in memory.
    batch.transaction.allowance.take(len(answer))
    batch.results.add_answer(operation, answer)
    return jsontext.raw_json(answer)


def _lock_rows_by_key(batch: _BatchRun, operations: Sequence[BatchOperation]) -> None:
    """Lock the rows that operations name by key, before any operation runs.

    Collections are locked in the order of their names, rows in the order of their keys. Two batches
    that name the same rows in different orders would deadlock without it.
    """
    collections = {operation.collection for operation in operations}
    for name in sorted(collections):
        try:
            call = _call(batch, name, _LOCK_ROWS)
            keys = _keys_in(operations, call.collection)
        except Refused:
            # The operation is refused when its turn comes, and then with its number.
            continue
        if keys:
            lock_rows(batch.executor, call.collection, keys)


def _keys_in(operations: Sequence[BatchOperation], collection: Collection) -> list[str]:
    """Return the keys by which operations name rows of a collection; raises `Refused`."""
    keys: list[str] = []
    for operation in operations:
        if operation.collection == collection.name:
            for key in _keys_of(operation, collection):
                # References to earlier operations are objects, and have no value yet.
                if may_be_key(collection, key):
                    keys.append(parse_key(collection, key))
    return keys


def _keys_of(operation: BatchOperation, collection: Collection) -> list[object]:
    """Return the keys by which an operation names rows that it writes, not parsed yet.

    References to earlier operations are among them, and whatever else was sent in place of a key.
    """
    if operation.method == "read":
        return []
    arguments = operation.arguments
    keys = [arguments.get("key")]
    named = arguments.get("keys")
    if isinstance(named, list):
        keys = list(named)
    data = arguments.get("data")
    if not isinstance(data, list):
        return keys
    # Changed items of an array hold their keys. New ones may, too: mostly no row has those yet.
    for item in data:
        if isinstance(item, dict):
            keys.append(sent_key(collection, item))
    return keys


def _run_operation(batch: _BatchRun, operation: BatchOperation) -> object:
    # Values of references are put in first, so that the method gets what a single call would.
    try:
        arguments = batch.results.resolve_references(operation.arguments)
    except RecursionError:
        # References are looked for as deep as the arguments are nested.
        raise invalid_payload("It is nested too deeply") from None
    if "key" in arguments:
        key = arguments["key"]
        collection = batch.context.snapshot.catalogue.collections.get(operation.collection)
        # A read with null as its key would be a read of all items.
        if key is None or (collection is not None and not may_be_key(collection, key)):
            raise invalid_payload('"key" must be a primary key', field="key")
    operation = replace(operation, arguments=arguments)
    return _METHODS[operation.method](batch, operation)


def _call(
    batch: _BatchRun,
    collection: str,
    intent: WriteIntent,
    output_params: Mapping[str, object] | None = None,
    *,
    of_one_item: bool = False,
) -> WriteCall:
    require_not_system(collection, batch.context.actor.policy)
    attempt = PartOfTransaction(batch.transaction)
    client = batch.identity.client
    call = new_call(batch.store, batch.context, client, attempt, name=collection, intent=intent)
    parsed = parse_answer(output_params or {}, batch.store.page, of_one_item=of_one_item)
    return call._replace(parsed=parsed)


# The methods of operations


def _create(batch: _BatchRun, operation: BatchOperation) -> object:
    data = operation.arguments["data"]
    is_one = not isinstance(data, list)
    call = _call(batch, operation.collection, CREATE, operation.output_params, of_one_item=is_one)
    if isinstance(data, list):
        return item_writes.create(call, data)
    return _single_item(item_writes.create(call, [data]))


def _read(batch: _BatchRun, operation: BatchOperation) -> object:
    require_not_system(operation.collection, batch.context.actor.policy)
    params = require_query(operation.arguments.get("query", {}))
    request = ReadRequest(operation.collection, params=params)
    key = operation.arguments.get("key")
    return batch.executor.answer(request, key=key)


def _update(batch: _BatchRun, operation: BatchOperation) -> object:
    arguments = operation.arguments
    data = arguments["data"]
    # Without any name of items, `data` is an array with keys, or the object of a singleton.
    names_items = bool(arguments.keys() & NAMING_FIELDS)
    # The one item of a singleton may have to be created.
    intent = CHANGE if names_items or isinstance(data, list) else PUT
    is_one = "key" in arguments or intent is PUT
    call = _call(batch, operation.collection, intent, operation.output_params, of_one_item=is_one)
    if "key" in arguments:
        key = _checked_key(batch, call, arguments)
        return _single_item(item_writes.update(call, key, data))
    if names_items:
        return item_writes.update_many(call, arguments)
    if isinstance(data, list):
        return item_writes.update_each(call, data)
    if not call.collection.is_singleton:
        raise invalid_payload(
            "It takes key, keys or query, or an array of items with their keys", field="key"
        )
    if_match: Any = arguments.get("if_match")
    check_singleton(batch.executor, call.collection, if_match=if_match)
    return _single_item(item_writes.update_singleton(call, data))


def _delete(batch: _BatchRun, operation: BatchOperation) -> None:
    call = _call(batch, operation.collection, DELETE)
    arguments = operation.arguments
    if "key" in arguments:
        key = _checked_key(batch, call, arguments)
        item_writes.delete(call, key)
    else:
        item_writes.delete_many(call, arguments)


def _checked_key(batch: _BatchRun, call: WriteCall, arguments: Mapping[str, Any]) -> str:
    """Return the key of an operation's item, whose version `if_match` must name, if it is sent."""
    key = parse_key(call.collection, arguments["key"])
    if_match = arguments.get("if_match")
    check_match(batch.executor, call.collection, key=key, if_match=if_match)
    return key


def _single_item(items: WrittenItems) -> object:
    # Nothing was read where the caller may write the item, but not read it.
    return items[0] if items else None


_METHODS = {"create": _create, "read": _read, "update": _update, "delete": _delete}
