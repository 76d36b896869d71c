"""Rows of files and folders, written like other items: with the caller's rights, with a history."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from cms import jsontext
from cms.errors import Refused, forbidden
from cms.files.contents import FieldValues
from cms.files.file_payloads import checked_changes, checked_fields
from cms.items.read.reads import parse_key
from cms.items.write import item_writes
from cms.items.write.authorizing import WriteAuthorizer
from cms.items.write.calls import WriteCall, WrittenItems
from cms.items.write.filtering import FlowFilter, flow_filter
from cms.items.write.item_filters import check_deletion
from cms.items.write.run.mutation_sequence import deletion_sequence
from cms.items.write.run.running import run_sequence
from cms.items.write.stages.parsed import Expects
from cms.items.write.transaction.executor import Executor
from cms.items.write.transaction.named_keys import named_keys, require_selection, selection_of
from cms.mappings import without
from cms.query.language.parse import parse_query_string
from cms.schema.model import Collection
from cms.schema.payload import MutableRowValues, converter
from cms.schema.system import FILES
from cms.store.context import RequestContext
from cms.store.idempotency import Idempotency
from cms.store.identity import Identity
from cms.store.store import Store
from cms.store.write_attempts import WriteAttempt

_INTERNAL = frozenset({"filename_disk"})
"""Values of new files that are not for flows."""


@dataclass(frozen=True, slots=True)
class WriteRequest:
    """The caller of a write, the query string for its answer, and the conditions of the call."""

    identity: Identity
    query_string: str = ""
    idempotency: Idempotency | None = None
    if_match: str | None = None


class NewRow(NamedTuple):
    """The values of a new row.

    `values` are the client's, `defaults` those of fields that it leaves out; `owned` are set by the
    service, whatever the client says.
    """

    values: FieldValues
    defaults: FieldValues
    owned: FieldValues


def require_permission(store: Store, identity: Identity, *, collection: str, action: str) -> None:
    """Refuse a caller that may do this to no row of a collection, before the body is read."""
    for attempt in store.primary_reads(identity):
        with attempt as context:
            _authorized_collection(context, collection, action)


def new_call(
    store: Store,
    request: WriteRequest,
    attempt: WriteAttempt,
    context: RequestContext,
    *,
    collection: str,
    action: str,
) -> WriteCall:
    """Return the call of an attempt; FORBIDDEN for a caller that may do this to no row."""
    target = _authorized_collection(context, collection, action)
    parsed = parse_query_string(request.query_string, store.page)
    authorizer = WriteAuthorizer(store, context)
    call = WriteCall(store, context, request.identity.client, target, parsed, authorizer, attempt)
    if collection == FILES:
        call = _call_of_files(call, action)
    return call


def _call_of_files(call: WriteCall, action: str) -> WriteCall:
    # Rows that flows have changed are checked like a client's values: flows cannot set the
    # service's fields either.
    if action != "create":
        return call._replace(check_filtered=checked_changes)
    # In the history of a file its creation is an upload.
    return call._replace(history_action="upload", check_filtered=checked_fields)


def create(call: WriteCall, rows: Sequence[NewRow]) -> WrittenItems:
    """Create rows."""
    flow = flow_filter(call, "create")
    if flow:
        call = flow.call
        rows = [_filtered_row(flow, row) for row in rows]
    parsed = item_writes.parse_payload(call, [row.values for row in rows], Expects.ABSENT)
    # As of folders, which have none: there may be many of them.
    if not any(row.defaults or row.owned for row in rows):
        return item_writes.write_payload(call, call.complete(*parsed))
    owned = [_values(call.collection, row.owned) for row in rows]
    # Before the checks of required fields, which defaults and the service's values satisfy.
    parsed_rows = []
    for parsed_row, row, row_owned in zip(parsed.items.rows, rows, owned, strict=True):
        defaults = _values(call.collection, row.defaults)
        values = {**defaults, **parsed_row.values, **row_owned}
        parsed_rows.append(parsed_row._replace(values=values))
    payload = call.complete(parsed.parser, parsed.items._replace(rows=parsed_rows))
    # Once more, because presets of permissions may have replaced them.
    complete_rows = []
    for complete_row, row_owned in zip(payload.root.rows, owned, strict=True):
        complete_rows.append(complete_row._replace(values={**complete_row.values, **row_owned}))
    root = payload.root._replace(rows=complete_rows)
    return item_writes.write_payload(call, payload._replace(root=root))


def _filtered_row(flow: FlowFilter, row: NewRow) -> NewRow:
    """Return a row as flows change it; they see the service's values, too."""
    payload = {**row.defaults, **row.values, **row.owned}
    visible_values = without(payload, _INTERNAL)
    item = flow.filters.item(visible_values, verb="create")
    # Values of the service that flows have not changed do not count as sent.
    changes: FieldValues = {}
    for name, value in item.items():
        if name in row.values or visible_values.get(name) != value:
            changes[name] = value
    return row._replace(values=dict(flow.call.check_filtered(changes)))


def update(
    call: WriteCall,
    key: str,
    changes: FieldValues,
    *,
    if_match: str | None,
    owned: FieldValues | None = None,
) -> WrittenItems:
    """Change one row, if it is in the state that If-Match names.

    `owned` are the values that the service sets.
    """
    row_key = parse_key(call.collection, key)
    sent: object = changes
    flow = flow_filter(call, "update")
    if flow:
        call = item_writes.require_match(flow.call, row_key, if_match)
        sent = flow.item(changes, [row_key])
    parser, items = item_writes.parse_payload(call, [sent], Expects.PRESENT)
    owned_values = _values(call.collection, owned or {})
    # The service's own values come last, and so replace whatever a client sends.
    rows = [row._replace(values={**row.values, **owned_values}) for row in items.rows]
    parsed = item_writes.ParsedPayload(parser, items._replace(rows=rows))
    payload = item_writes.complete_update(call, parsed, [row_key])
    if flow is None:
        call = item_writes.require_match(call, row_key, if_match)
    return item_writes.write_payload(call, payload)


def update_many(call: WriteCall, payload: object) -> WrittenItems:
    """Change several rows.

    The payload is an array of objects with their keys, or `data` with `keys` or `query`.
    """
    if isinstance(payload, list):
        return item_writes.update_each(call, payload)
    assert isinstance(payload, Mapping)
    return item_writes.update_many(call, require_selection(payload, "data"))


def keys_of(executor: Executor, collection: Collection, payload: object) -> list[str]:
    """Return the keys that a payload names: by an array of keys, by `keys` or by `query`."""
    return named_keys(executor, collection, selection_of(payload))


def delete(
    call: WriteCall, executor: Executor, collection: Collection, keys: Sequence[str]
) -> dict[str, int | None]:
    """Delete rows that the caller names, and return their last revisions by their keys.

    Raises `Refused` NOT_FOUND or FORBIDDEN, and then deletes none.
    """
    # Folders are often empty.
    if not keys:
        return {}
    fetch = executor.transaction.execute
    authorized = call.authorizer.authorize_delete(collection, keys, fetch)
    check_deletion(executor, collection, keys)
    written = run_sequence(executor, deletion_sequence(authorized))
    return dict(written.deleted(collection))


def delete_below(
    call: WriteCall, executor: Executor, name: str, keys: Sequence[str]
) -> dict[str, int | None]:
    """Delete rows below those that the caller names.

    Raises `Refused` FORBIDDEN for a row that the caller may not delete.
    """
    collection = call.context.snapshot.catalogue.collections[name]
    try:
        return delete(call, executor, collection, keys)
    except Refused as refused:
        # The caller has not named the row, so NOT_FOUND would reveal a row that the caller may not
        # see.
        if refused.problems[0].code == "NOT_FOUND":
            raise forbidden() from None
        raise


def response_body(items: WrittenItems, *, single: bool) -> bytes | None:
    """Return rows as the body of an answer; None for a caller that may write but not read them."""
    if items is None:
        return None
    if single:
        return jsontext.dumps({"data": items[0]})
    return jsontext.dumps({"data": items})


def _authorized_collection(context: RequestContext, name: str, action: str) -> Collection:
    policy = context.actor.policy
    if not policy.is_admin and not policy.granted(name, action):
        raise forbidden()
    return context.snapshot.catalogue.collections[name]


def _values(collection: Collection, fields: FieldValues) -> MutableRowValues:
    """Return values that the service sets, as the columns take them."""
    values: MutableRowValues = {}
    for name, value in fields.items():
        convert = converter(collection.fields[name])
        values[name] = None
        # Converters are for values: null is the same in every column.
        if value is not None:
            values[name] = convert(value)
    return values
