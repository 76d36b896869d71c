"""Rows of files and folders, written as any other items are: with the caller's rights, and with their history."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

from cms import jsontext
from cms.database.connections import Transaction
from cms.errors import Refused, forbidden
from cms.files.contents import Json
from cms.items.read.reads import parse_key
from cms.items.write import plans, preconditions
from cms.items.write.authorizing import WriteAuthorizer
from cms.items.write.calls import WriteCall, WrittenItems
from cms.items.write.changes import Expects, RowChange
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

FILE_CREATION = "system_files", "create"

TransactionWork = Callable[[Transaction], T]
"""What is done once a transaction is open."""


def require_permission(store: Store, identity: Identity, name: str, action: str) -> None:
    """Refuse who may not do this to any row of a collection, before anything of the request is read."""
    store.run_primary_read(identity, lambda context: _authorized_collection(context, name, action))


@dataclass(frozen=True, slots=True)
class WriteRequest:
    """Who calls, how the answer is to look, and under which conditions the call is done."""

    identity: Identity
    query_string: str = ""
    idempotency: Idempotency | None = None
    if_match: str | None = None


def writing(
    store: Store,
    request: WriteRequest,
    to: tuple[str, str],
    plan: Callable[[WriteCall], TransactionWork[T]],
) -> T:
    """Plan and do a write; `to` is a collection and an action. Raises `Refused` FORBIDDEN for who may not do it."""
    name, action = to

    def planned(context: RequestContext) -> WritePlan[T]:
        collection = _authorized_collection(context, name, action)
        parsed = parse_query_string(request.query_string, store.page)
        authorizer = WriteAuthorizer(store, context)
        history_action = "upload" if to == FILE_CREATION else None
        return WritePlan(
            plan(
                WriteCall(
                    store,
                    context,
                    request.identity.client,
                    collection,
                    parsed,
                    authorizer,
                    history_action,
                )
            )
        )

    return store.run_write(request.identity, planned, idempotency=request.idempotency)


def check_match(request: WriteRequest, call: WriteCall, transaction: Transaction, key: str) -> None:
    """Hold a row, and refuse to go on when it is not the one that If-Match names."""
    keys = parse_key(call.collection, key)
    preconditions.check_match(
        call.store, transaction, call.context, call.collection, key=keys, if_match=request.if_match
    )


def plan_create(
    call: WriteCall,
    items: Sequence[Mapping[str, object]],
    defaults: Sequence[Json],
    owned: Sequence[Json],
) -> TransactionWork[WrittenItems]:
    """Return what creates rows: of what is said, else of what is usual, and always of what the service owns."""
    parser = call.payload_parser()
    root = parser.parse(call.collection, items, Expects.ABSENT)
    for change, common, kept in zip(root.changes, defaults, owned, strict=True):
        change.values |= {
            **_values(call.collection, common),
            **change.values,
            **_values(call.collection, kept),
        }
    call.complete(parser, root)
    for change, kept in zip(root.changes, owned, strict=True):
        change.values |= _values(call.collection, kept)  # over what permissions preset
    return partial(plans.write_items, call, parser, root)


def plan_update(
    request: WriteRequest, call: WriteCall, key: str, item: object, owned: Json
) -> TransactionWork[WrittenItems]:
    """Return what changes one row, if it is the one that the caller means."""
    parser = call.payload_parser()
    keys = [parse_key(call.collection, key)]
    root = parser.parse(call.collection, [item], Expects.PRESENT)
    _set_owned(root.changes, call.collection, owned)
    write = partial(
        plans.write_items, call, parser, plans.complete_update(call, parser, root, keys)
    )

    def within(transaction: Transaction) -> WrittenItems:
        check_match(request, call, transaction, key)
        return write(transaction)

    return within


def plan_update_many(call: WriteCall, payload: object) -> TransactionWork[WrittenItems]:
    """Return what changes rows of an array with their keys, or those that `keys` or `query` name by `data`."""
    if isinstance(payload, list):
        return plans.plan_update_each(call, payload).within
    assert isinstance(payload, Mapping)
    return plans.plan_update_many(call, payload).within


def named(write_context: WriteContext, collection: Collection, payload: object) -> list[str]:
    """Return the keys that a batch names: an array of them, `keys` or `query`."""
    given = payload if isinstance(payload, Mapping) else {"keys": payload}
    return named_keys(write_context, collection, given)


def delete(
    write_context: WriteContext, collection: Collection, keys: Sequence[str]
) -> dict[str, int | None]:
    """Delete rows that the caller names, and return their last revisions by their keys.

    Raises `Refused` NOT_FOUND or FORBIDDEN, and then for all.
    """
    if not keys:
        return {}
    write_context.authorizer.authorize_delete(collection, keys, write_context.transaction.execute)
    return dict(delete_rows(write_context, collection, keys))


def delete_below(
    write_context: WriteContext, name: str, keys: Sequence[str]
) -> dict[str, int | None]:
    """Delete rows that go with those that the caller names; one that it may not delete, or not see, is FORBIDDEN."""
    try:
        return delete(
            write_context, write_context.context.snapshot.catalogue.collections[name], keys
        )
    except Refused as refused:
        raise (forbidden() if refused.problems[0].code == "NOT_FOUND" else refused) from None


def response_body(found: WrittenItems, *, many: bool) -> bytes | None:
    """Return rows as the body of an answer; None for a caller that may write but not read them."""
    return None if found is None else jsontext.dumps({"data": found if many else found[0]})


def _authorized_collection(context: RequestContext, name: str, action: str) -> Collection:
    if not context.actor.policy.is_admin and not context.actor.policy.granted(name, action):
        raise forbidden()
    return context.snapshot.catalogue.collections[name]


def _set_owned(changes: Sequence[RowChange], collection: Collection, owned: Json) -> None:
    for change in changes:
        change.values |= _values(collection, owned)


def _values(collection: Collection, said: Json) -> Values:
    """Return values of the service's own as the columns take them."""
    return {
        name: None if value is None else converter(collection.fields[name])(value)
        for name, value in said.items()
    }
