"""Plans of calls that write items: creates, changes, deletes.

A payload becomes a tree of changes (cms/items/write/payload_parser.py), whose passwords are hashed
by then. One statement does what names no related item (cms/items/write/single_statement.py).
Anything else is resolved (cms/items/write/resolving.py) and written change set by change set
(cms/items/write/nested.py) in a transaction, always through the functions of
cms/items/write/rows.py, and read back as the caller may read it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial

from cms.access.guard import view_of
from cms.access.write_permissions import RowRules
from cms.database.connections import Transaction
from cms.database.error_mapping import Conflict
from cms.errors import Problem, Refused, not_found
from cms.items.read.prepare import statement_for
from cms.items.read.row_limits import ReadRun
from cms.items.write import single_statement
from cms.items.write.calls import WriteCall, WrittenItems
from cms.items.write.changes import ChangeSet, Expects, PayloadPosition, Problems
from cms.items.write.conflicts import locating_conflicts
from cms.items.write.deletion import delete_rows
from cms.items.write.inquiry import PayloadInquiry
from cms.items.write.named_keys import named_keys
from cms.items.write.nested import write_tree
from cms.items.write.payload_parser import PayloadParser
from cms.items.write.rows import WriteContext
from cms.items.write.single_statement import RunStatement
from cms.items.write.transaction_reads import items_of
from cms.query.language.ast import OperatorTest, Query, RowOutput, Slot
from cms.query.sql import locks
from cms.schema.model import Collection
from cms.schema.payload import invalid_item
from cms.store.store import WritePlan

# Creates and changes


def plan_create(call: WriteCall, items: Sequence[object]) -> WritePlan[WrittenItems]:
    """Create items."""
    parser = call.payload_parser()
    root = parser.parse(call.collection, items, Expects.ABSENT)
    call.complete(parser, root)
    run = single_statement.plan_insert(call, root) if root.is_flat else None
    return _plan(call, parser, root, run)


def plan_update(call: WriteCall, key: str, item: object) -> WritePlan[WrittenItems]:
    """Change the item of a key."""
    parser = call.payload_parser()
    root = parser.parse(call.collection, [item], Expects.PRESENT)
    root = complete_update(call, parser, root, [key])
    # A revert has a history action of its own, which only the transaction writes.
    row_rules = None if call.history_action else _row_rules_of_update(call, root)
    run = single_statement.plan_update(call, root, row_rules) if row_rules else None
    return _plan(call, parser, root, run)


def plan_update_each(call: WriteCall, items: list[object]) -> WritePlan[WrittenItems]:
    """Change the items of an array, which hold their keys."""
    parser = call.payload_parser()
    root = parser.parse(call.collection, items, Expects.PRESENT)
    seen: set[str] = set()
    for change in root.changes:
        change.key = change.values.pop(root.key_field, None)
        reason = None
        if change.key is None and root.key_field not in change.invalid_fields:
            reason = "it must hold its primary key"
        elif change.key in seen:
            reason = "it is there twice"
        if reason:
            problem = invalid_item(reason, call.collection.name, root.key_field)
            parser.problems.add(problem, change.position)
        seen.add(str(change.key))
    call.complete(parser, root)
    return WritePlan(partial(write_items, call, parser, root))


def plan_update_many(call: WriteCall, payload: Mapping[str, object]) -> WritePlan[WrittenItems]:
    """Give the items that `keys` or `query` name the values of `data`."""
    parser = call.payload_parser()
    # Parsed before the transaction, so that hidden names are refused without one.
    root = parser.parse(call.collection, [payload["data"]], Expects.PRESENT)
    return WritePlan(partial(_update_many, call, parser, root, payload))


def plan_singleton(call: WriteCall, item: object) -> WritePlan[WrittenItems]:
    """Change the one item of a singleton, or create it."""
    parser = call.payload_parser()
    root = parser.parse(call.collection, [item], Expects.EITHER)
    return WritePlan(partial(_put_singleton, call, parser, root))


def complete_update(
    call: WriteCall, parser: PayloadParser, root: ChangeSet, keys: Sequence[str]
) -> ChangeSet:
    """Return the complete tree of a change that gives all items of the keys the same values."""
    if len(keys) != len(root.changes):  # an item of the wrong shape has become no change
        root = _one_change_for_each_key(call, parser, root, len(keys))
    sent_keys = [change.values.pop(root.key_field, None) for change in root.changes]
    is_other_key = any(
        sent_key not in (None, key) for sent_key, key in zip(sent_keys, keys, strict=True)
    )
    is_key_of_several = len(keys) > 1 and any(sent_keys)
    if is_other_key or is_key_of_several:
        parser.problems.add(_key_change_problem(call.collection), PayloadPosition())
    for change, key in zip(root.changes, keys, strict=True):
        change.key = key
    call.complete(parser, root)
    return root


def write_items(
    call: WriteCall, parser: PayloadParser, root: ChangeSet, transaction: Transaction
) -> WrittenItems:
    """Write a complete tree in a transaction and return its items."""
    return _write_and_read(call.write_context(transaction), call, parser, root)


def _update_many(
    call: WriteCall,
    parser: PayloadParser,
    root: ChangeSet,
    payload: Mapping[str, object],
    transaction: Transaction,
) -> WrittenItems:
    write_context = call.write_context(transaction)
    keys = named_keys(write_context, call.collection, payload)
    root = complete_update(call, parser, root, keys)
    return _write_and_read(write_context, call, parser, root)


def _put_singleton(
    call: WriteCall, parser: PayloadParser, root: ChangeSet, transaction: Transaction
) -> WrittenItems:
    write_context = call.write_context(transaction)
    # Nobody else may create the row once it is known whether there is one.
    transaction.run(locks.lock_singleton(call.collection))
    stored = transaction.run(locks.singleton_key(call.collection))
    if stored:
        for change in root.changes:
            change.is_new = False
            change.key = str(stored[0][0])
            if change.values.pop(root.key_field, None) not in (None, change.key):
                parser.problems.add(_key_change_problem(call.collection), change.position)
    call.complete(parser, root)
    return _write_and_read(write_context, call, parser, root)


def _one_change_for_each_key(
    call: WriteCall, parser: PayloadParser, root: ChangeSet, count: int
) -> ChangeSet:
    """Return the tree with one item for each key; what is nested is written for each of them."""
    parser.problems.refuse()
    if not root.is_flat:
        items = [root.changes[0].sent] * count
        return parser.parse(call.collection, items, Expects.PRESENT)
    (change,) = root.changes
    root.changes = [replace(change, values=change.values.copy()) for _ in range(count)]
    return root


def _key_change_problem(collection: Collection) -> Problem:
    return invalid_item(
        "the primary key of an item cannot be changed", collection.name, collection.primary_key
    )


# One statement


def _plan(
    call: WriteCall, parser: PayloadParser, root: ChangeSet, run: RunStatement | None
) -> WritePlan[WrittenItems]:
    in_transaction = partial(write_items, call, parser, root)
    if run is None:
        return WritePlan(in_transaction)
    return WritePlan(in_transaction, partial(_run_locating_conflicts, call, root, run))


def _run_locating_conflicts(call: WriteCall, root: ChangeSet, run: RunStatement) -> WrittenItems:
    """Run a statement that is all of a call, and tell which row the database refuses."""
    try:
        with locating_conflicts(root.collection, root.changes):
            return run()
    except Conflict as conflict:
        # The statement reaches its values only after the caller was found to be permitted.
        catalogue = call.context.snapshot.catalogue
        conflict.inquiry = PayloadInquiry(catalogue, root, is_permitted=True)
        raise


def _row_rules_of_update(call: WriteCall, root: ChangeSet) -> RowRules | None:
    """Return the rules that one statement tests when it changes a row.

    None where stored values have to be read first, and where anything is wrong with the change:
    whether its row is there has to be answered before that.
    """
    if not root.is_flat or call.authorizer.has_conditions(call.collection):
        return None
    row_rules = call.authorizer.permissions.row_rules(call.collection, "update")
    if row_rules is None:
        return None
    problems = Problems()
    try:
        call.authorizer.authorize_without_rows(root, problems)
    except Refused:
        return None
    if problems.entries:
        return None
    return replace(row_rules, after=root.changes[0].rule)


# Deletes


def plan_delete(call: WriteCall, key: str) -> WritePlan[object]:
    """Delete the item of a key."""
    row_rules = call.authorizer.permissions.row_rules(call.collection, "delete")
    run = single_statement.plan_delete(call, key, row_rules) if row_rules else None
    return WritePlan(partial(_delete_one, call, key), run)


def plan_delete_many(call: WriteCall, payload: Mapping[str, object]) -> WritePlan[object]:
    """Delete the items that `keys` or `query` name."""
    return WritePlan(partial(_delete_many, call, payload))


def _delete_one(call: WriteCall, key: str, transaction: Transaction) -> object:
    return _delete(call.write_context(transaction), call.collection, [key])


def _delete_many(
    call: WriteCall, payload: Mapping[str, object], transaction: Transaction
) -> object:
    write_context = call.write_context(transaction)
    keys = named_keys(write_context, call.collection, payload)
    return _delete(write_context, call.collection, keys)


def _delete(write_context: WriteContext, collection: Collection, keys: Sequence[str]) -> object:
    fetch = write_context.transaction.execute
    write_context.authorizer.authorize_delete(collection, keys, fetch)
    deleted = delete_rows(write_context, collection, keys)
    write_context.authorizer.run_after_hook(collection, fetch)
    return deleted


# The answer


def _write_and_read(
    write_context: WriteContext, call: WriteCall, parser: PayloadParser, root: ChangeSet
) -> WrittenItems:
    """Write a tree and return its items, in their order, as this caller may read them."""
    keys = write_tree(write_context, parser, root)
    if not keys:
        return []
    name = root.collection.name
    catalogue = write_context.context.snapshot.catalogue
    policy = write_context.context.actor.policy
    if view_of(name, catalogue=catalogue, policy=policy) is None:
        return None
    context = write_context.context
    query = _answer_query(call, root.collection)
    statement = statement_for(write_context.store, context, name, query)
    run = ReadRun(statement, (*call.parsed.literals, tuple(keys)), top=len(keys))
    items = items_of(write_context.store, write_context.transaction, context, run)
    by_key = {str(item.pop(RowOutput.KEY)): item for item in items}
    if len(by_key) < len(keys) and policy.is_admin:
        raise not_found()  # a trigger of the table may have moved or removed them
    # The caller may write rows that it may not read: these are left out.
    return [by_key[key] for key in keys if key in by_key] or None


def _answer_query(call: WriteCall, collection: Collection) -> Query:
    """Return the query for the written items: their keys are its last literal."""
    query = call.parsed.query
    return Query(
        picks=(*query.picks, RowOutput.KEY),
        deep=query.deep,
        checked_only=query.checked_only,
        key_test=OperatorTest("_in", (Slot(len(call.parsed.literals)),)),
    )
