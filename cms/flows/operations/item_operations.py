"""The operations on items, with the rights that their option `permissions` names."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from types import TracebackType

from cms import jsontext
from cms.access.problem_redaction import redacted_problems
from cms.database.connections import Transaction
from cms.errors import not_found
from cms.flows.run import OpenTransaction, Rejected, RenderedOptions, Run
from cms.items.read.prepare import ReadRequest
from cms.items.read.reads import keyed
from cms.items.write import item_writes
from cms.items.write.calls import CHANGE, CREATE, DELETE, PUT, WriteCall, WriteIntent, new_call
from cms.items.write.transaction.executor import Executor
from cms.schema.keys import are_keys, filter_of_keys
from cms.schema.model import Collection
from cms.store.actors import find_actor
from cms.store.context import RequestContext
from cms.store.identity import Identity
from cms.store.write_attempts import TransactionSource, WriteAttempt


def create_items(options: RenderedOptions, run: Run) -> object:
    """Create one item, or several of a list, and return their keys."""
    payload = options["payload"]
    items = payload if isinstance(payload, list) else [payload]
    for attempt in _attempts(options, run):
        with attempt as context:
            call = _call(options, run, attempt, context, CREATE)
            keys = item_writes.create_keys(call, items)
    return keys


def read_items(options: RenderedOptions, run: Run) -> object:
    """Return the items of a query or of a list of keys; the item alone for a single key."""
    # In a transaction, not on a replica: a run must see the write that caused it.
    for attempt in _attempts(options, run):
        with attempt as context:
            data = _read(options, run, attempt.begin_transaction(), context)
    # Parts of an answer are JSON already, but templates look into them.
    return jsontext.loads_stored(jsontext.dumps(data))


def _read(
    options: RenderedOptions, run: Run, transaction: Transaction, context: RequestContext
) -> object:
    name = options["collection"]
    key = options.get("key")
    _require_selection(options)
    query = dict(options.get("query") or {})
    executor = Executor(run.services.store, context, transaction, run.identity.client)
    if isinstance(key, list) and are_keys(keyed(context, name), key):
        _require_one_page(key, query, run.services.store.page.maximum)
        return executor.answer(ReadRequest(name, params=_of_keys(context, name, key, query)))
    return executor.answer(ReadRequest(name, params=query), key=key)


def _require_one_page(
    keys: Sequence[object], query: Mapping[str, object], maximum: int | None
) -> None:
    """Reject keys of more items than one read returns, unless the query has a limit of its own."""
    number = len({str(key) for key in keys})
    if maximum is not None and number > maximum and query.get("limit") in (None, -1):
        raise Rejected({"message": f"A read returns {maximum} items at most, not {number}."})


def _of_keys(
    context: RequestContext, name: str, keys: Sequence[object], query: Mapping[str, object]
) -> dict[str, object]:
    """Return a query for the items of these keys, all on one page."""
    try:
        of_keys = filter_of_keys(keyed(context, name), keys)
    except ValueError:
        raise not_found() from None
    query_filter: object = of_keys
    if query.get("filter"):
        query_filter = {"_and": [query["filter"], of_keys]}
    # A limit of the query itself replaces -1, which is all items.
    return {"limit": -1, **query, "filter": query_filter}


def update_items(options: RenderedOptions, run: Run) -> object:
    """Change items, and return their keys.

    A payload is for the items of a key, of keys or of a query alike; those of a list hold their
    keys.
    """
    payload = options["payload"]
    intent = CHANGE if isinstance(payload, list) else PUT
    for attempt in _attempts(options, run):
        with attempt as context:
            call = _call(options, run, attempt, context, intent)
            if isinstance(payload, list):
                keys = item_writes.update_each_keys(call, payload)
            else:
                selection = _selection(options, call.collection)
                keys = item_writes.update_many_keys(call, selection, payload)
    return keys


def delete_items(options: RenderedOptions, run: Run) -> object:
    """Delete the items of a key, of keys or of a query, and return their keys."""
    for attempt in _attempts(options, run):
        with attempt as context:
            call = _call(options, run, attempt, context, DELETE)
            keys = item_writes.delete_many(call, _selection(options, call.collection))
    return keys


def _selection(options: RenderedOptions, collection: Collection) -> dict[str, object]:
    """Return which items an operation names, as `keys` or `query`; keys go first."""
    key = options.get("key")
    if key is None:
        _require_selection(options)
        return {"query": options.get("query") or {}}
    return {"keys": key if are_keys(collection, key) else [key]}


def _require_selection(options: RenderedOptions) -> None:
    """Reject a key or a filter whose template leads nowhere: it must not select all items."""
    if "key" in options and options["key"] is None:
        raise Rejected({"message": "The key is null, which would be all items."})
    query = options.get("query") or {}
    if "filter" in query and query["filter"] is None:
        raise Rejected({"message": "The filter is null, which would be all items."})


def _call(
    options: RenderedOptions,
    run: Run,
    attempt: TransactionSource,
    context: RequestContext,
    intent: WriteIntent,
) -> WriteCall:
    client = _identity(options, run).client
    return new_call(
        run.services.store, context, client, attempt, name=options["collection"], intent=intent
    )


def _attempts(options: RenderedOptions, run: Run) -> Iterable[WriteAttempt | _PartOfFilterFlow]:
    """Return the attempts at an operation: in its own transaction, or in that of a filter flow."""
    identity = _identity(options, run)
    if run.transaction is None:
        return run.services.store.write(identity)
    return [_PartOfFilterFlow(run, run.transaction, identity)]


class _PartOfFilterFlow:
    """The one attempt at an operation in the transaction of a filter flow."""

    has_begun = True

    def __init__(self, run: Run, transaction: OpenTransaction, identity: Identity) -> None:
        self._run = run
        self._transaction = transaction
        self._identity = identity
        self._stack = ExitStack()

    def begin_transaction(self) -> Transaction:
        return self._transaction.transaction

    def __enter__(self) -> RequestContext:
        with ExitStack() as stack:
            transaction = stack.enter_context(self._run.open_transaction())
            # Not the snapshot of the write: an operation before this one may have changed rights,
            # and the new ones apply already.
            snapshot = self._transaction.current_snapshot()
            fetch = transaction.execute
            context = RequestContext(snapshot, find_actor(snapshot, self._identity, fetch), fetch)
            # As around other writes: a flow must not see more of a refusal than its caller.
            stack.enter_context(redacted_problems(context.actor.policy))
            self._stack = stack.pop_all()
        return context

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stack.__exit__(kind, error, trace)


def _identity(options: RenderedOptions, run: Run) -> Identity:
    emits_events = options.get("emitEvents") is not False
    return run.identity_for(options.get("permissions"), emits_events=emits_events)
