"""What calls on items come to: each is planned to a `WritePlan`, alone or as one operation of a batch.

The payload becomes a tree of drafts (cms/items/write/changes.py), whose passwords are hashed by then. A single
statement does what speaks of no related item (cms/items/write/single_statement.py); anything else is settled
(cms/items/write/resolving.py) and written batch by batch (cms/items/write/nested.py), always through the functions of
cms/items/write/rows.py, and read back as the caller may read it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from cms.access.guard import view_of, writable_collection
from cms.access.structure import has_permission_on
from cms.access.write_permissions import RowRules
from cms.database.connections import Transaction
from cms.database.error_mapping import Conflict
from cms.errors import Problem, Refused, abbreviated, combined, invalid_payload, not_found
from cms.items.read.prepare import statement_for
from cms.items.read.reads import Item, parse_key
from cms.items.read.row_limits import ReadRun
from cms.items.write import single_statement
from cms.items.write.authorizing import WriteAuthorizer
from cms.items.write.changes import ChangeSet, Expects, PayloadParser, PayloadPosition, Problems
from cms.items.write.conflicts import locating_conflicts
from cms.items.write.deletion import delete_rows
from cms.items.write.inquiry import PayloadInquiry
from cms.items.write.item_parsers import reader_of
from cms.items.write.nested import write_tree
from cms.items.write.rows import WriteContext, lock_rows
from cms.items.write.single_statement import SingleWrite
from cms.items.write.transaction_reads import fetch_within, find
from cms.query.language.ast import (
    INTERNAL_KEY,
    FieldName,
    OperatorTest,
    ParsedQuery,
    Pick,
    Query,
    Slot,
)
from cms.query.language.parse import PARAMETERS, PageSizes, parse
from cms.query.sql import locks
from cms.schema.model import Collection
from cms.schema.payload import ItemParser, invalid_item
from cms.store.context import RequestContext
from cms.store.identity import ClientInfo
from cms.store.store import Store, WritePlan

_WITHOUT_LIMIT = PageSizes(default=None)

_ACTIONS = {
    Expects.ABSENT: ("create",),
    Expects.PRESENT: ("update",),
    Expects.EITHER: ("create", "update"),
}

WrittenItems = list[Item] | None
"""Items as their caller may read them; None when it may not."""


@dataclass(frozen=True, slots=True)
class WriteIntent:
    """What a call is out to do, whether it may do it to a singleton, and what the history calls it."""

    actions: tuple[str, ...]
    allows_singletons: bool = False
    history_action: str | None = None


CREATE, CHANGE, DELETE = (
    WriteIntent(("create",)),
    WriteIntent(("update",)),
    WriteIntent(("delete",)),
)
PUT = WriteIntent(("create", "update"), allows_singletons=True)
RESTORE = WriteIntent(("update",), allows_singletons=True, history_action="revert")


@dataclass(frozen=True, slots=True)
class WriteCall:
    """One call, under the structure and rights that it was planned under."""

    store: Store
    context: RequestContext
    client: ClientInfo
    collection: Collection
    parsed: ParsedQuery
    authorizer: WriteAuthorizer
    history_action: str | None = None

    @property
    def single_write(self) -> SingleWrite:
        return SingleWrite(self.store, self.context, self.client, self.parsed)

    def write_context(self, transaction: Transaction) -> WriteContext:
        self.authorizer.use_transaction(transaction.execute)
        return WriteContext(
            self.store, transaction, self.context, self.client, self.authorizer, self.history_action
        )

    def drafter(self) -> PayloadParser:
        snapshot, licence = self.context.snapshot, self.authorizer.licence

        def reader(collection: Collection, expects: Expects) -> ItemParser:
            def make() -> ItemParser:
                names = licence.writable_fields(collection, _ACTIONS[expects])
                return reader_of(
                    snapshot.catalogue,
                    collection,
                    names,
                    knows=partial(has_permission_on, licence.policy),
                )

            found: ItemParser = snapshot.derived.setdefault_with(
                ("reader", collection.name, expects, licence.policy), make
            )
            return found

        return PayloadParser(snapshot.catalogue, depth=self.store.depth, readers=reader)

    def complete(self, drafter: PayloadParser, root: ChangeSet) -> None:
        """Complete the rows of a root; refuse at once when nothing else is to be looked at."""
        self.authorizer.complete(root, drafter.faults)
        if root.is_flat:
            context = self.context
            drafter.faults.refuse(
                PayloadInquiry(
                    context.snapshot.catalogue, root, is_permitted=context.actor.policy.is_admin
                )
            )


def new_call(
    store: Store,
    context: RequestContext,
    client: ClientInfo,
    ask: tuple[str, ParsedQuery],
    intent: WriteIntent,
) -> WriteCall:
    """Return a call on a collection.

    Raises `Refused` for what the caller may not even try: a singleton has no items to create or to name by key.
    """
    name, parsed = ask
    collection = writable_collection(
        name,
        catalogue=context.snapshot.catalogue,
        policy=context.actor.policy,
        actions=intent.actions,
    )
    if collection.is_singleton and not intent.allows_singletons:
        raise not_found()
    return WriteCall(
        store,
        context,
        client,
        collection,
        parsed,
        WriteAuthorizer(store, context, context.fetch),
        intent.history_action,
    )


def plan_create(call: WriteCall, items: Sequence[object]) -> WritePlan[WrittenItems]:
    """Create items."""
    drafter = call.drafter()
    root = drafter.root(call.collection, items, Expects.ABSENT)
    call.complete(drafter, root)
    in_one_statement = root.is_flat and single_statement.plan_insert(call.single_write, root)
    return WritePlan(
        writing(call, drafter, root), _locating_conflicts(call, root, in_one_statement or None)
    )


def plan_update(call: WriteCall, key: str, item: object) -> WritePlan[WrittenItems]:
    """Change the item of a key."""
    drafter = call.drafter()
    root = changed(call, drafter, drafter.root(call.collection, [item], Expects.PRESENT), [key])
    row_rules = None if call.history_action else _update_terms(call, root)
    in_one_statement = (
        single_statement.plan_update(call.single_write, root, row_rules) if row_rules else None
    )
    return WritePlan(
        writing(call, drafter, root), _locating_conflicts(call, root, in_one_statement)
    )


def plan_update_each(call: WriteCall, items: list[object]) -> WritePlan[WrittenItems]:
    """Change the items of an array, which hold their keys."""
    drafter = call.drafter()
    root = drafter.root(call.collection, items, Expects.PRESENT)
    seen: set[str] = set()
    for draft in root.drafts:
        draft.key = draft.values.pop(root.key_field, None)
        if draft.key is None and root.key_field not in draft.invalid_fields:
            drafter.faults.add(
                invalid_item("it must hold its primary key", call.collection.name, root.key_field),
                draft.position,
            )
        elif draft.key in seen:
            drafter.faults.add(
                invalid_item("it is there twice", call.collection.name, root.key_field),
                draft.position,
            )
        seen.add(str(draft.key))
    call.complete(drafter, root)
    return WritePlan(writing(call, drafter, root))


def plan_update_many(call: WriteCall, payload: Mapping[str, object]) -> WritePlan[WrittenItems]:
    """Give the items that `keys` or `query` name what `data` says."""
    drafter = call.drafter()
    root = drafter.root(call.collection, [payload["data"]], Expects.PRESENT)

    def within(transaction: Transaction) -> WrittenItems:
        write_context = call.write_context(transaction)
        keys = named(write_context, call.collection, payload)
        return _write_and_read(write_context, call, drafter, changed(call, drafter, root, keys))

    return WritePlan(within)


def plan_singleton(call: WriteCall, item: object) -> WritePlan[WrittenItems]:
    """Change the one item of a singleton, or make it."""
    drafter = call.drafter()
    root = drafter.root(call.collection, [item], Expects.EITHER)

    def within(transaction: Transaction) -> WrittenItems:
        write_context = call.write_context(transaction)
        transaction.run(locks.lock_singleton(call.collection))
        present = transaction.run(locks.singleton_key(call.collection))
        for draft in root.drafts if present else ():
            draft.new, draft.key = False, str(present[0][0])
            if draft.values.pop(root.key_field, None) not in (None, draft.key):
                drafter.faults.add(_key_change_problem(call.collection), draft.position)
        call.complete(drafter, root)
        return _write_and_read(write_context, call, drafter, root)

    return WritePlan(within)


def plan_delete(call: WriteCall, key: str) -> WritePlan[object]:
    """Delete the item of a key."""
    row_rules = call.authorizer.licence.row_rules(call.collection, "delete")
    in_one_statement = (
        single_statement.plan_delete(call.single_write, call.collection, key, row_rules)
        if row_rules
        else None
    )
    return WritePlan(
        lambda transaction: _delete(call.write_context(transaction), call.collection, [key]),
        in_one_statement,
    )


def plan_delete_many(call: WriteCall, payload: Mapping[str, object]) -> WritePlan[object]:
    """Delete the items that `keys` or `query` name."""

    def within(transaction: Transaction) -> object:
        write_context = call.write_context(transaction)
        return _delete(
            write_context, call.collection, named(write_context, call.collection, payload)
        )

    return WritePlan(within)


def _locating_conflicts(
    call: WriteCall, root: ChangeSet, in_one_statement: Callable[[], WrittenItems] | None
) -> Callable[[], WrittenItems] | None:
    """Let a statement that is all of a call tell which row the database refuses."""

    def run() -> WrittenItems:
        assert in_one_statement
        try:
            with locating_conflicts(root.collection, root.drafts):
                return in_one_statement()
        except Conflict as conflict:
            # Values meet their columns only in rows that the caller may write.
            conflict.inquiry = PayloadInquiry(
                call.context.snapshot.catalogue, root, is_permitted=True
            )
            raise

    return in_one_statement and run


# Changes


def _update_terms(call: WriteCall, root: ChangeSet) -> RowRules | None:
    """Return the rules of a change that one statement can mind; None where it has to look at what is there first.

    So it is where something is wrong with the change: whether its row is there comes before that.
    """
    if not root.is_flat or call.authorizer.has_conditions(call.collection):
        return None
    row_rules, faults = call.authorizer.licence.row_rules(call.collection, "update"), Problems()
    try:
        if row_rules:
            call.authorizer.authorize_without_rows(root, faults)
    except Refused:
        return None
    return replace(row_rules, after=root.drafts[0].rule) if row_rules and not faults.found else None


def _delete(write_context: WriteContext, collection: Collection, keys: Sequence[str]) -> object:
    write_context.authorizer.authorize_delete(collection, keys, write_context.transaction.execute)
    gone = delete_rows(write_context, collection, keys)
    write_context.authorizer.run_after_hook(collection, write_context.transaction.execute)
    return gone


def changed(
    call: WriteCall, drafter: PayloadParser, root: ChangeSet, keys: Sequence[str]
) -> ChangeSet:
    """Return the complete tree of a change that gives all items of the keys the values of the one in the root."""
    if len(keys) != len(root.drafts):  # an item of the wrong shape has made no draft
        root = _one_draft_for_each_key(call, drafter, root, len(keys))
    named = [draft.values.pop(root.key_field, None) for draft in root.drafts]
    if any(found not in (None, key) for found, key in zip(named, keys, strict=True)) or (
        len(keys) > 1 and any(named)
    ):
        drafter.faults.add(_key_change_problem(call.collection), PayloadPosition())
    for draft, key in zip(root.drafts, keys, strict=True):
        draft.key = key
    call.complete(drafter, root)
    return root


def _one_draft_for_each_key(
    call: WriteCall, drafter: PayloadParser, root: ChangeSet, number: int
) -> ChangeSet:
    """Return the tree with one item for each key; what is nested is written for each of them."""
    drafter.faults.refuse()
    if not root.is_flat:
        return drafter.root(call.collection, [root.drafts[0].sent] * number, Expects.PRESENT)
    root.drafts = [
        replace(draft, values=draft.values.copy()) for draft in root.drafts for _ in range(number)
    ]
    return root


def _key_change_problem(collection: Collection) -> Problem:
    return invalid_item(
        "the primary key of an item cannot be changed", collection.name, collection.primary_key
    )


# Keys


def named(
    write_context: WriteContext, collection: Collection, payload: Mapping[str, object]
) -> list[str]:
    """Return the keys of the items that a batch names: by `keys` or by `query`, and never by both."""
    if len({"keys", "query"} & payload.keys()) != 1:
        raise invalid_payload("It takes either keys or query", field="keys")
    if "keys" in payload:
        return _keys(collection, payload["keys"])
    return _keys_by_query(write_context, collection, payload["query"])


def _keys(collection: Collection, given: object) -> list[str]:
    """Return the keys of a batch, each once."""
    if not isinstance(given, list) or any(
        isinstance(key, dict | list) or key is None for key in given
    ):
        raise invalid_payload(
            "keys must be an array of primary keys", field="keys", value=abbreviated(given)
        )
    return list(dict.fromkeys(parse_key(collection, key) for key in given))


def _keys_by_query(
    write_context: WriteContext, collection: Collection, params: object
) -> list[str]:
    """Return the keys of the items that a query finds; no default limit applies to it.

    It is asked again once the items are held: of those that somebody else has changed or taken away meanwhile it
    speaks no longer.
    """
    if not isinstance(params, Mapping):
        raise invalid_payload("query must be an object", field="query", value=abbreviated(params))
    unknown = [name for name in params if name not in PARAMETERS]
    if unknown:  # a misspelt filter would otherwise change every row
        known = f"there are {', '.join(sorted(PARAMETERS))}"
        reasons = (f'query does not take "{name}"; {known}' for name in unknown)
        raise combined(
            problem
            for reason in reasons
            for problem in invalid_payload(reason, field="query").problems
        )
    parsed = parse(params, _WITHOUT_LIMIT)
    query = replace(
        parsed.query, picks=(_key_pick(collection),), aggregates=(), groups=(), counts=()
    )

    def found() -> list[str]:
        return [
            str(item[INTERNAL_KEY])
            for item in _find(write_context, collection, query, parsed.literals)
        ]

    keys = found()
    lock_rows(write_context, collection, keys)
    held = set(found())
    return [key for key in keys if key in held]


def _key_pick(collection: Collection) -> Pick:
    return Pick(INTERNAL_KEY, FieldName(str(collection.primary_key)))


# Rows out


def writing(
    call: WriteCall, drafter: PayloadParser, root: ChangeSet
) -> Callable[[Transaction], WrittenItems]:
    return lambda transaction: _write_and_read(call.write_context(transaction), call, drafter, root)


def _write_and_read(
    write_context: WriteContext, call: WriteCall, drafter: PayloadParser, root: ChangeSet
) -> WrittenItems:
    """Write a tree and return its items, in their order, as this caller may read them; None where it may not."""
    keys, parsed = write_tree(write_context, drafter, root), call.parsed
    if not keys:
        return []
    name, policy = root.collection.name, write_context.context.actor.policy
    if view_of(name, catalogue=write_context.context.snapshot.catalogue, policy=policy) is None:
        return None
    picks = (*parsed.query.picks, _key_pick(root.collection))
    only = OperatorTest("_in", (Slot(len(parsed.literals)),))
    query = Query(
        picks=picks, deep=parsed.query.deep, checked_only=parsed.query.checked_only, key_test=only
    )
    found = statement_for(write_context.store, write_context.context, name, query)
    asked = ReadRun(found, (*parsed.literals, tuple(keys)), top=len(keys))
    items = found.items(
        fetch_within(write_context.store, write_context.transaction, write_context.context, asked)
    )
    by_key = {str(item.pop(INTERNAL_KEY)): item for item in items}
    if (
        len(by_key) < len(keys) and policy.is_admin
    ):  # a trigger of the table may have moved or removed them
        raise not_found()
    return [by_key[key] for key in keys if key in by_key] or None


def _find(
    write_context: WriteContext, collection: Collection, query: Query, literals: tuple[object, ...]
) -> list[Item]:
    return find(
        write_context.store,
        write_context.transaction,
        write_context.context,
        collection.name,
        query,
        literals=literals,
    )
