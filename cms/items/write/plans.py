"""Plans of calls that write items: creates, changes, deletes.

A payload is parsed and completed, with its passwords hashed, before there is a transaction. One
statement does what names no related item (cms/items/write/single_statement.py). Anything else is
resolved, authorized and written in a transaction (cms/items/write/nested.py), and read back as the
caller may read it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple, TypeVar

from cms.access.guard import view_of
from cms.database.connections import Transaction
from cms.errors import Problem, Refused, not_found
from cms.items.write import single_statement
from cms.items.write.calls import WriteCall, WrittenItems
from cms.items.write.deletion import delete_rows
from cms.items.write.executor import Executor
from cms.items.write.named_keys import named_keys
from cms.items.write.nested import CompletePayload, write_tree
from cms.items.write.parsed import Expects, ParsedSet
from cms.items.write.payload_parser import PayloadParser
from cms.items.write.preconditions import check_match, check_singleton
from cms.items.write.problems import PayloadPosition, Problems
from cms.items.write.resolved_rows import ResolvedSet, StoredRows
from cms.items.write.single_statement import StatementRun
from cms.query.language.ast import OperatorTest, Query, Slot
from cms.query.sql import locks
from cms.schema.model import Collection
from cms.schema.payload import invalid_item
from cms.store.write_plan import WritePlan

T = TypeVar("T")


class ParsedPayload(NamedTuple):
    """The parsed items of a call, and the parser that holds their problems."""

    parser: PayloadParser
    items: ParsedSet


# Creates and changes


@dataclass(frozen=True, slots=True)
class PayloadPlan(WritePlan[WrittenItems]):
    """The write of a payload that is complete; `statement` does all of it, if one can."""

    call: WriteCall
    payload: CompletePayload
    statement: StatementRun | None = None

    @property
    def is_one_statement(self) -> bool:
        return self.statement is not None

    def run_alone(self) -> WrittenItems:
        assert self.statement
        return self.statement.run()

    def run(self, transaction: Transaction) -> WrittenItems:
        return _write_and_read(self.call, self.call.executor(transaction), self.payload)


@dataclass(frozen=True, slots=True)
class NamedUpdatePlan(WritePlan[WrittenItems]):
    """The change of the items that `keys` or `query` name."""

    call: WriteCall
    parsed: ParsedPayload
    selection: Mapping[str, object]

    def run(self, transaction: Transaction) -> WrittenItems:
        executor = self.call.executor(transaction)
        keys = named_keys(executor, self.call.collection, self.selection)
        payload = complete_update(self.call, self.parsed, keys)
        return _write_and_read(self.call, executor, payload)


@dataclass(frozen=True, slots=True)
class SingletonPlan(WritePlan[WrittenItems]):
    """The change of the one item of a singleton, or its creation."""

    call: WriteCall
    parsed: ParsedPayload

    def run(self, transaction: Transaction) -> WrittenItems:
        call = self.call
        executor = call.executor(transaction)
        # Nobody else may create the row once it is known whether there is one.
        transaction.run(locks.lock_singleton(call.collection))
        stored = transaction.run(locks.singleton_key(call.collection))
        keys: dict[int, str | None] = {}
        if stored:
            keys = dict.fromkeys(range(len(self.parsed.items.rows)), str(stored[0][0]))
            self._check_keys(str(stored[0][0]))
        payload = call.complete(*self.parsed, StoredRows(keys))
        return _write_and_read(call, executor, payload)

    def _check_keys(self, key: str) -> None:
        items = self.parsed.items
        for row in items.rows:
            if row.values.get(items.key_field) not in (None, key):
                problem = _key_change_problem(self.call.collection)
                self.parsed.parser.problems.add(problem, row.position)


def plan_create(call: WriteCall, items: Sequence[object]) -> PayloadPlan:
    """Create items."""
    parsed = parse_payload(call, items, Expects.ABSENT)
    payload = call.complete(*parsed)
    statement = None
    if payload.related is None:
        statement = single_statement.plan_insert(call, payload.root)
    return PayloadPlan(call, payload, statement)


def plan_update(call: WriteCall, key: str, item: object) -> PayloadPlan:
    """Change the item of a key."""
    payload = complete_update(call, parse_payload(call, [item], Expects.PRESENT), [key])
    # A revert has a history action of its own, which only the transaction writes.
    if call.history_action or payload.related is not None:
        return PayloadPlan(call, payload)
    return PayloadPlan(call, payload, _update_statement(call, payload.root))


def plan_update_each(call: WriteCall, items: list[object]) -> PayloadPlan:
    """Change the items of an array, which hold their keys."""
    parser, parsed = parse_payload(call, items, Expects.PRESENT)
    key_field = parsed.key_field
    keys = [values.get(key_field) for values in parsed.row_values]
    # Nearly always there is nothing to find in the rows.
    if None in keys or len(set(keys)) < len(keys):
        _add_key_problems(call, parser, parsed)
    return PayloadPlan(call, call.complete(parser, parsed, StoredRows(dict(enumerate(keys)))))


def _add_key_problems(call: WriteCall, parser: PayloadParser, parsed: ParsedSet) -> None:
    """Add a problem for each item without its key, and for each key that is there again."""
    seen: set[str] = set()
    for row in parsed.rows:
        key = row.values.get(parsed.key_field)
        reason = None
        if key is None and parsed.key_field not in row.invalid_fields:
            reason = "it must hold its primary key"
        elif key in seen:
            reason = "it is there twice"
        if reason:
            problem = invalid_item(reason, call.collection.name, parsed.key_field)
            parser.problems.add(problem, row.position)
        seen.add(str(key))


def plan_update_many(call: WriteCall, payload: Mapping[str, object]) -> NamedUpdatePlan:
    """Give the items that `keys` or `query` name the values of `data`."""
    # Parsed before the transaction, so that hidden names are refused without one.
    parsed = parse_payload(call, [payload["data"]], Expects.PRESENT)
    return NamedUpdatePlan(call, parsed, payload)


def plan_singleton(call: WriteCall, item: object) -> SingletonPlan:
    """Change the one item of a singleton, or create it."""
    return SingletonPlan(call, parse_payload(call, [item], Expects.EITHER))


def parse_payload(call: WriteCall, items: Sequence[object], expects: Expects) -> ParsedPayload:
    parser = call.payload_parser()
    return ParsedPayload(parser, parser.parse(call.collection, items, expects))


def complete_update(call: WriteCall, parsed: ParsedPayload, keys: Sequence[str]) -> CompletePayload:
    """Return the payload of a change that gives all items of the keys the same values."""
    parser, items = parsed
    if len(keys) != len(items.rows):  # an item of the wrong shape has become no row
        items = _one_row_for_each_key(call, parsed, len(keys))
    sent_keys = [row.values.get(items.key_field) for row in items.rows]
    is_other_key = any(
        sent_key not in (None, key) for sent_key, key in zip(sent_keys, keys, strict=True)
    )
    is_key_of_several = len(keys) > 1 and any(sent_keys)
    if is_other_key or is_key_of_several:
        parser.problems.add(_key_change_problem(call.collection), PayloadPosition())
    return call.complete(parser, items, StoredRows(dict(enumerate(keys))))


def _one_row_for_each_key(call: WriteCall, parsed: ParsedPayload, count: int) -> ParsedSet:
    """Return one row for each key; what is nested is written for each of them."""
    parser, items = parsed
    parser.problems.refuse()
    (row,) = items.rows
    if items.is_flat:
        return replace(items, rows=[row] * count)
    return parser.parse(call.collection, [row.sent] * count, Expects.PRESENT)


def _key_change_problem(collection: Collection) -> Problem:
    return invalid_item(
        "the primary key of an item cannot be changed", collection.name, collection.primary_key
    )


# One statement


def _update_statement(call: WriteCall, root: ResolvedSet) -> StatementRun | None:
    """Return the statement that changes a row, with the rules that it tests.

    None where stored values have to be read first, and where anything is wrong with the change:
    whether its row is there has to be answered before that.
    """
    if call.authorizer.has_conditions(call.collection):
        return None
    row_rules = call.authorizer.permissions.row_rules(call.collection, "update")
    if row_rules is None:
        return None
    problems = Problems()
    try:
        authorized = call.authorizer.authorize_without_rows(root, problems)
    except Refused:
        return None
    if problems.entries:
        return None
    row_rules = replace(row_rules, after=authorized.rows[0].rule)
    return single_statement.plan_update(call, authorized, row_rules)


# Deletes


@dataclass(frozen=True, slots=True)
class DeletePlan(WritePlan[object]):
    """The deletion of the item of a key; `statement` does all of it, if one can."""

    call: WriteCall
    key: str
    statement: StatementRun | None

    @property
    def is_one_statement(self) -> bool:
        return self.statement is not None

    def run_alone(self) -> object:
        assert self.statement
        return self.statement.run()

    def run(self, transaction: Transaction) -> object:
        return _delete(self.call, self.call.executor(transaction), [self.key])


@dataclass(frozen=True, slots=True)
class NamedDeletePlan(WritePlan[object]):
    """The deletion of the items that `keys` or `query` name."""

    call: WriteCall
    selection: Mapping[str, object]

    def run(self, transaction: Transaction) -> object:
        executor = self.call.executor(transaction)
        keys = named_keys(executor, self.call.collection, self.selection)
        return _delete(self.call, executor, keys)


def plan_delete(call: WriteCall, key: str) -> DeletePlan:
    """Delete the item of a key."""
    row_rules = call.authorizer.permissions.row_rules(call.collection, "delete")
    statement = single_statement.plan_delete(call, key, row_rules) if row_rules else None
    return DeletePlan(call, key, statement)


def plan_delete_many(call: WriteCall, payload: Mapping[str, object]) -> NamedDeletePlan:
    """Delete the items that `keys` or `query` name."""
    return NamedDeletePlan(call, payload)


def _delete(call: WriteCall, executor: Executor, keys: Sequence[str]) -> object:
    fetch = executor.transaction.execute
    call.authorizer.authorize_delete(call.collection, keys, fetch)
    deleted = delete_rows(executor, call.collection, keys)
    call.authorizer.run_after_hook(call.collection, fetch)
    return deleted


# If-Match


@dataclass(frozen=True, slots=True)
class MatchingPlan(WritePlan[T]):
    """A plan that runs only while the item of a key has the version of an If-Match header."""

    call: WriteCall
    plan: WritePlan[T]
    key: str
    if_match: str

    def run(self, transaction: Transaction) -> T:
        executor = self.call.executor(transaction)
        check_match(executor, self.call.collection, key=self.key, if_match=self.if_match)
        return self.plan.run(transaction)


@dataclass(frozen=True, slots=True)
class MatchingSingletonPlan(WritePlan[T]):
    """A plan that runs only while a singleton has the version of an If-Match header."""

    call: WriteCall
    plan: WritePlan[T]
    if_match: str

    def run(self, transaction: Transaction) -> T:
        executor = self.call.executor(transaction)
        check_singleton(executor, self.call.collection, if_match=self.if_match)
        return self.plan.run(transaction)


def with_precondition(
    call: WriteCall, plan: WritePlan[T], *, key: str, if_match: str | None
) -> WritePlan[T]:
    """Return a plan that tests an If-Match header, if there is one."""
    return plan if if_match is None else MatchingPlan(call, plan, key, if_match)


# The answer


def _write_and_read(call: WriteCall, executor: Executor, payload: CompletePayload) -> WrittenItems:
    """Write a payload and return its items, in their order, as this caller may read them."""
    keys = write_tree(executor, payload)
    if not keys:
        return []
    name = call.collection.name
    catalogue = executor.context.snapshot.catalogue
    policy = executor.context.actor.policy
    if view_of(name, catalogue=catalogue, policy=policy) is None:
        return None
    literals = (*call.parsed.literals, tuple(keys))
    by_key = executor.read_by_key(name, _answer_query(call), literals, top=len(keys))
    if len(by_key) < len(keys) and policy.is_admin:
        raise not_found()  # a trigger of the table may have moved or removed them
    # The caller may write rows that it may not read: these are left out.
    return [by_key[key] for key in keys if key in by_key] or None


def _answer_query(call: WriteCall) -> Query:
    """Return the query for the written items: their keys are its last literal."""
    query = call.parsed.query
    return Query(
        picks=query.picks,
        deep=query.deep,
        checked_only=query.checked_only,
        key_test=OperatorTest("_in", (Slot(len(call.parsed.literals)),)),
    )
