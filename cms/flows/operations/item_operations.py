"""The operations on items, with the rights that their option `permissions` names."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TypeVar

from cms import jsontext
from cms.access.problem_redaction import redacted_problems
from cms.database.connections import Transaction
from cms.flows.run import Rejected, RenderedOptions, Run
from cms.items.read.prepare import ReadRequest
from cms.items.read.reads import keyed
from cms.items.write.calls import CHANGE, CREATE, DELETE, PUT, WriteCall, WriteIntent, new_call
from cms.items.write.keyed_plans import (
    AnsweredKeys,
    plan_keyed_create,
    plan_keyed_deletion,
    plan_keyed_update,
    plan_keyed_update_each,
)
from cms.items.write.transaction.executor import Executor
from cms.query.language.ast import EMPTY_QUERY
from cms.store.actors import find_actor
from cms.store.context import RequestContext
from cms.store.identity import Identity
from cms.store.write_attempts import Write
from cms.store.write_plan import WritePlan, transaction_plan

T = TypeVar("T")


def create_items(options: RenderedOptions, run: Run) -> object:
    """Create one item, or several of a list, and return their keys."""
    payload = options["payload"]
    items = payload if isinstance(payload, list) else [payload]
    return _write(options, run, CREATE, lambda call: plan_keyed_create(call, items))


def read_items(options: RenderedOptions, run: Run) -> object:
    """Return the items of a query or of a list of keys; the item alone for a single key."""
    # In a transaction, not on a replica: a run must see the write that caused it.
    data = _run(options, run, partial(transaction_plan, partial(_read, options, run)))
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
    if isinstance(key, list):
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
    of_keys = {str(keyed(context, name).primary_key): {"_in": list(keys)}}
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
    if isinstance(payload, list):
        return _write(options, run, CHANGE, lambda call: plan_keyed_update_each(call, payload))
    selection = _selection(options)
    return _write(options, run, PUT, lambda call: plan_keyed_update(call, selection, payload))


def delete_items(options: RenderedOptions, run: Run) -> object:
    """Delete the items of a key, of keys or of a query, and return their keys."""
    selection = _selection(options)
    return _write(options, run, DELETE, lambda call: plan_keyed_deletion(call, selection))


def _selection(options: RenderedOptions) -> dict[str, object]:
    """Return which items an operation names, as `keys` or `query`; keys go first."""
    key = options.get("key")
    if key is None:
        _require_selection(options)
        return {"query": options.get("query") or {}}
    if isinstance(key, list):
        return {"keys": key}
    return {"keys": [key]}


def _require_selection(options: RenderedOptions) -> None:
    """Reject a key or a filter whose template leads nowhere: it must not select all items."""
    if "key" in options and options["key"] is None:
        raise Rejected({"message": "The key is null, which would be all items."})
    query = options.get("query") or {}
    if "filter" in query and query["filter"] is None:
        raise Rejected({"message": "The filter is null, which would be all items."})


def _write(
    options: RenderedOptions,
    run: Run,
    intent: WriteIntent,
    plan: Callable[[WriteCall], WritePlan[AnsweredKeys]],
) -> object:
    return _run(options, run, partial(_plan_write, options, run, intent, plan))


def _plan_write(
    options: RenderedOptions,
    run: Run,
    intent: WriteIntent,
    plan: Callable[[WriteCall], WritePlan[AnsweredKeys]],
    context: RequestContext,
) -> WritePlan[AnsweredKeys]:
    call = new_call(
        run.services.store,
        context,
        _identity(options, run).client,
        name=options["collection"],
        parsed=EMPTY_QUERY,
        intent=intent,
    )
    return plan(call)


def _run(options: RenderedOptions, run: Run, plan: Callable[[RequestContext], WritePlan[T]]) -> T:
    """Run a plan in a transaction of its own, or in that of the filter flow."""
    identity = _identity(options, run)
    if run.transaction is None:
        write: Write[T] = run.services.store.write(identity)
        for attempt in write:
            with attempt as own_context:
                write.answer = attempt.run(plan(own_context))
        return write.answer
    with run.open_transaction() as transaction:
        # Not the snapshot of the write: an operation before this one may have changed rights, and
        # the new ones apply already.
        snapshot = run.transaction.current_snapshot()
        fetch = transaction.execute
        context = RequestContext(snapshot, find_actor(snapshot, identity, fetch), fetch)
        # The store does the same around other writes: a flow must not see more of a refusal than
        # its caller.
        with redacted_problems(context.actor.policy):
            return plan(context).run(transaction)


def _identity(options: RenderedOptions, run: Run) -> Identity:
    emits_events = options.get("emitEvents") is not False
    return run.identity_for(options.get("permissions"), emits_events=emits_events)
