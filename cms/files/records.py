"""Rows of files and folders, written like other items: with the caller's rights, with a history."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple, TypeVar

from cms import jsontext
from cms.database.connections import Transaction
from cms.errors import Refused, forbidden
from cms.files.contents import Json
from cms.items.read.reads import parse_key
from cms.items.write import plans, preconditions
from cms.items.write.authorizing import WriteAuthorizer
from cms.items.write.calls import WriteCall, WrittenItems
from cms.items.write.changes import Expects
from cms.items.write.deletion import delete_rows
from cms.items.write.named_keys import named_keys
from cms.items.write.rows import WriteContext
from cms.query.language.parse import parse_query_string
from cms.schema.model import Collection
from cms.schema.payload import Values, converter
from cms.store.context import RequestContext
from cms.store.idempotency import Idempotency
from cms.store.identity import Identity
from cms.store.store import Store, WritePlan

FILES = "system_files"
FOLDERS = "system_folders"

T = TypeVar("T")

TransactionWork = Callable[[Transaction], T]
"""The work of a write inside its transaction."""


@dataclass(frozen=True, slots=True)
class WriteRequest:
    """The caller of a write, the query string for its answer, and the conditions of the call."""

    identity: Identity
    query_string: str = ""
    idempotency: Idempotency | None = None
    if_match: str | None = None


class NewRow(NamedTuple):
    """The client's values for a row, the defaults of those that it leaves out, and the values that
    the service always sets.
    """

    values: Json
    defaults: Json
    owned: Json


def require_permission(store: Store, identity: Identity, *, collection: str, action: str) -> None:
    """Refuse a caller that may do this to no row of a collection, before the body is read."""
    store.run_primary_read(
        identity, lambda context: _authorized_collection(context, collection, action)
    )


def run_write(
    store: Store,
    request: WriteRequest,
    *,
    collection: str,
    action: str,
    plan: Callable[[WriteCall], TransactionWork[T]],
) -> T:
    """Plan a write of a collection, and do it in a transaction.

    Raises `Refused` FORBIDDEN for a caller that may do it to no row.
    """
    # In the history of a file its creation is an upload.
    history_action = "upload" if collection == FILES and action == "create" else None

    def plan_write(context: RequestContext) -> WritePlan[T]:
        target = _authorized_collection(context, collection, action)
        parsed = parse_query_string(request.query_string, store.page)
        authorizer = WriteAuthorizer(store, context)
        client = request.identity.client
        call = WriteCall(store, context, client, target, parsed, authorizer, history_action)
        return WritePlan(plan(call))

    return store.run_write(request.identity, plan_write, idempotency=request.idempotency)


def check_match(request: WriteRequest, call: WriteCall, transaction: Transaction, key: str) -> None:
    """Lock a row; raise `Refused` when it is not in the state that If-Match names."""
    row_key = parse_key(call.collection, key)
    preconditions.check_match(
        call.store,
        transaction,
        call.context,
        call.collection,
        key=row_key,
        if_match=request.if_match,
    )


def plan_create(call: WriteCall, rows: Sequence[NewRow]) -> TransactionWork[WrittenItems]:
    """Return the work that creates rows."""
    parser = call.payload_parser()
    root = parser.parse(call.collection, [row.values for row in rows], Expects.ABSENT)
    # Before the checks of required fields, which defaults and the service's values satisfy.
    for change, row in zip(root.changes, rows, strict=True):
        change.values |= {
            **_values(call.collection, row.defaults),
            **change.values,
            **_values(call.collection, row.owned),
        }
    call.complete(parser, root)
    # Once more, because presets of permissions may have replaced them.
    for change, row in zip(root.changes, rows, strict=True):
        change.values |= _values(call.collection, row.owned)
    return partial(plans.write_items, call, parser, root)


def plan_update(
    request: WriteRequest, call: WriteCall, *, key: str, changes: Json, owned: Json | None = None
) -> TransactionWork[WrittenItems]:
    """Return the work that changes one row, if it is in the state that If-Match names.

    `owned` are the values that the service sets.
    """
    parser = call.payload_parser()
    keys = [parse_key(call.collection, key)]
    root = parser.parse(call.collection, [changes], Expects.PRESENT)
    owned_values = _values(call.collection, owned or {})
    for change in root.changes:
        change.values |= owned_values
    write = partial(
        plans.write_items, call, parser, plans.complete_update(call, parser, root, keys)
    )

    def run(transaction: Transaction) -> WrittenItems:
        check_match(request, call, transaction, key)
        return write(transaction)

    return run


def plan_update_many(call: WriteCall, payload: object) -> TransactionWork[WrittenItems]:
    """Return the work that changes several rows.

    The payload is an array of objects with their keys, or `data` with `keys` or `query`.
    """
    if isinstance(payload, list):
        return plans.plan_update_each(call, payload).within
    assert isinstance(payload, Mapping)
    return plans.plan_update_many(call, payload).within


def keys_of(write_context: WriteContext, collection: Collection, payload: object) -> list[str]:
    """Return the keys that a payload names: by an array of keys, by `keys` or by `query`."""
    selection = payload
    if not isinstance(selection, Mapping):
        selection = {"keys": payload}
    return named_keys(write_context, collection, selection)


def delete(
    write_context: WriteContext, collection: Collection, keys: Sequence[str]
) -> dict[str, int | None]:
    """Delete rows that the caller names, and return their last revisions by their keys.

    Raises `Refused` NOT_FOUND or FORBIDDEN, and then deletes none.
    """
    # Folders are often empty.
    if not keys:
        return {}
    write_context.authorizer.authorize_delete(collection, keys, write_context.transaction.execute)
    return dict(delete_rows(write_context, collection, keys))


def delete_below(
    write_context: WriteContext, name: str, keys: Sequence[str]
) -> dict[str, int | None]:
    """Delete rows below those that the caller names.

    Raises `Refused` FORBIDDEN for a row that the caller may not delete.
    """
    collection = write_context.context.snapshot.catalogue.collections[name]
    try:
        return delete(write_context, collection, keys)
    except Refused as refused:
        # The caller has not named the row, so NOT_FOUND would tell of a row that it may not see.
        if refused.problems[0].code == "NOT_FOUND":
            raise forbidden() from None
        raise


def response_body(items: WrittenItems, *, many: bool) -> bytes | None:
    """Return rows as the body of an answer; None for a caller that may write but not read them."""
    if items is None:
        return None
    data = items if many else items[0]
    return jsontext.dumps({"data": data})


def _authorized_collection(context: RequestContext, name: str, action: str) -> Collection:
    policy = context.actor.policy
    if not policy.is_admin and not policy.granted(name, action):
        raise forbidden()
    return context.snapshot.catalogue.collections[name]


def _values(collection: Collection, fields: Json) -> Values:
    """Return values that the service sets, as the columns take them."""
    values: Values = {}
    for name, value in fields.items():
        convert = converter(collection.fields[name])
        # Converters are for values: null is the same in every column.
        values[name] = None if value is None else convert(value)
    return values
