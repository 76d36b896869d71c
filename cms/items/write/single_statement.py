"""Writes that are one statement, without a transaction around it: nearly all writes.

The statement writes one item, or several that name the same fields. It compares the counters of
freshness, tests the rules of permissions on the row before and after the change, writes the rows
with their history, and answers the written rows. For a write that one statement cannot do, the
functions here return None: nothing has been written, and the write takes a transaction. They refuse
nothing after they have written, because refused work may be tried again.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from cms.access.guard import QueryBounds, guard, view_of
from cms.access.recorded_lookups import RecordingCatalogue
from cms.access.write_permissions import NO_ROW_RULES, RowRules, record_rules
from cms.database.error_mapping import Conflict, RowsMissing
from cms.errors import Refused, forbidden, not_found
from cms.fragment import Fragment
from cms.items.read.reads import Item
from cms.items.write.calls import WriteCall, WrittenItems
from cms.items.write.hooks import NO_HOOKS, hooks_of
from cms.items.write.run.conflicts import located
from cms.items.write.run.many_to_any import many_to_any_of
from cms.items.write.run.refusal_diagnosis import InquirySet, inquire_on_conflict
from cms.items.write.stages.mutations import AuthorizedSet, Delete, Insert, Update
from cms.items.write.stages.problems import Problems
from cms.items.write.stages.resolved_rows import ResolvedSet, values_of
from cms.items.write.transaction.event_runs import cause_literals, flows_after
from cms.items.write.transaction.executor import number_parameters
from cms.items.write.transaction.rows import (
    ColumnNames,
    column_values,
    group_by_columns,
    not_written,
)
from cms.query.language.ast import Query
from cms.query.plan.bindings import bind_values
from cms.query.plan.links import Link
from cms.query.plan.plan import plan
from cms.query.plan.read_plan import (
    EVERY_ROW,
    Embed,
    EmbedChoice,
    Output,
    Predicate,
    ReadPlan,
    ValueOutput,
    inner_parts,
)
from cms.query.plan.sizes import written_size
from cms.query.sql import write
from cms.query.sql.arguments import VERSION_SLOTS, ArgumentSlots, FlowsByVerb
from cms.query.sql.expressions import predicate
from cms.query.sql.select import top_outputs
from cms.query.sql.statement import Statement
from cms.query.sql.write import SingleStatement, StoredRowTests
from cms.schema.model import Catalogue, Collection, Kind
from cms.store.counters import check_version
from cms.store.fetching import cached_statement
from cms.store.snapshot import CachedStatement

_NEEDS_TRANSACTION = Statement("", (), (), ())
"""Stands in the cache for the statement of a shape whose writes take a transaction."""

_VERB_OF_MUTATION: Mapping[type, str] = {Insert: "create", Update: "update", Delete: "delete"}
"""The events that mutations are."""


class WrittenAlone(NamedTuple):
    """What a single statement has written, as the caller may read it."""

    items: WrittenItems


class WriteShape(NamedTuple):
    """The properties that writes with the same statement share; `single` is for one row.

    `columns` are those that get values; the arguments of a change begin with the row's key.
    """

    mutation: type[Insert] | type[Update] | type[Delete]
    collection: Collection
    columns: ColumnNames
    row_rules: RowRules
    single: bool = True
    flows: FlowsByVerb = ()


def insert(call: WriteCall, root: ResolvedSet) -> WrittenAlone | None:
    """Insert rows, and return them in order; None where it takes a transaction."""
    groups = group_by_columns(values_of(root.rows))
    # A statement has one list of columns.
    if len(groups) != 1:
        return None
    authorized = call.authorizer.authorize_without_rows(root, Problems())
    single = len(root.rows) == 1
    # The statement tests one rule, and several rows may each have their own.
    if authorized.rules and not single:
        return None
    (columns,) = groups
    row_rules = NO_ROW_RULES
    if authorized.rules:
        row_rules = RowRules(after=authorized.rules[0])
    shape = WriteShape(Insert, root.collection, columns, row_rules, single)
    values = column_values(columns, values_of(authorized.rows), single=single)
    return _write(call, shape, values, authorized)


def update(call: WriteCall, root: ResolvedSet) -> WrittenAlone | None:
    """Change one row, and return it; None where it takes a transaction.

    A transaction is needed if the change depends on stored values. It is also needed if the change
    has a problem, because a missing row must be reported before that problem.
    """
    if call.authorizer.has_conditions(call.collection):
        return None
    (changed,) = root.rows
    row_rules: RowRules | None = NO_ROW_RULES
    if not call.context.actor.policy.is_admin:
        names_sent = changed.changed_fields(root.collection)
        row_rules = call.authorizer.permissions.update_rules(call.collection, names_sent)
    if row_rules is None:
        return None
    problems = Problems()
    try:
        authorized = call.authorizer.authorize_without_rows(root, problems)
    except Refused:
        return None
    (row,) = authorized.rows
    # A change without values is an entry of the history only, which this statement does not make.
    if problems.entries or not row.values:
        return None
    if authorized.rules:
        row_rules = RowRules(row_rules.before, after=authorized.rules[0])
    names = sorted(row.values)
    values: list[object] = [row.key]
    for name in names:
        values.append(row.values[name])
    shape = WriteShape(Update, root.collection, tuple(names), row_rules)
    return _write(call, shape, values, authorized)


def delete(call: WriteCall, key: str) -> WrittenAlone | None:
    """Delete one row; None where it takes a transaction."""
    row_rules = call.authorizer.permissions.delete_rules(call.collection)
    # The key is the only argument of the statement.
    return _write(call, WriteShape(Delete, call.collection, (), row_rules), [key])


def _write(
    call: WriteCall,
    shape: WriteShape,
    values: Sequence[object],
    authorized: AuthorizedSet | None = None,
) -> WrittenAlone | None:
    verb = _VERB_OF_MUTATION[shape.mutation]
    events = call.context.snapshot.events.of(shape.collection.name)
    # Nearly all collections have none.
    if events.by_event and (flows := flows_after(events, call.client, shape.collection, verb=verb)):
        # The ids of the flows are constants of the statement, and so part of its key.
        shape = shape._replace(flows=flows)
        values = (*cause_literals(call.context, call.client), *values)
    statement = _statement(call, shape)
    row_count = len(authorized.rows) if authorized else 1
    if statement is _NEEDS_TRANSACTION:
        return None
    # A write whose answer turns out too large must be undone, which takes a transaction.
    size = statement.written_size
    if size is not None and size.of(row_count) > call.store.max_answer_size:
        return None
    literals = (
        *call.parsed.literals,
        *call.context.snapshot.version,
        *call.client.author(call.context.actor.user),
        *values,
    )
    if authorized is None:
        return WrittenAlone(_run(call, shape, statement, literals))
    return WrittenAlone(_run_with_rows(call, shape, statement, literals, authorized))


# The run


def _run_with_rows(
    call: WriteCall,
    shape: WriteShape,
    statement: Statement,
    literals: Sequence[object],
    authorized: AuthorizedSet,
) -> WrittenItems:
    """Write rows; raises `Refused` with the row whose value the database refuses."""
    try:
        return _run(call, shape, statement, literals)
    except Conflict as conflict:
        # Not kept in a variable: its traceback would keep this frame, and so the request.
        raise _explained(conflict, call, shape, authorized) from None
    except RowsMissing:
        raise not_written(shape.collection) from None


def _explained(
    conflict: Conflict, call: WriteCall, shape: WriteShape, authorized: AuthorizedSet
) -> Conflict:
    """Return a conflict with the place of its row, and what asks about all others."""
    conflict = located(conflict, shape.collection, authorized.rows)
    inquiry_set = InquirySet(shape.collection, authorized.rows)
    inquire_on_conflict(conflict, call.context.snapshot.catalogue, [inquiry_set])
    return conflict


def _run(
    call: WriteCall, shape: WriteShape, statement: Statement, literals: Sequence[object]
) -> WrittenItems:
    values = bind_values(statement.values, call.context.bindings(literals))
    rows = call.store.database.primary.fetch(statement.text, values)
    check_version(call.context.snapshot, statement.version(rows))
    items = statement.items(rows)
    if not items:
        # The statement is older than the trigger: the next snapshot has another one.
        if shape.mutation is Insert:
            raise not_written(shape.collection)
        # The last column of the one row is whether the caller knows of the stored row.
        is_known = shape.row_rules.before and rows[0][-1]
        raise forbidden() if is_known else not_found()
    if not statement.counts:
        return items
    readable: list[Item] = []
    for item, row in zip(items, rows, strict=True):
        is_readable, *_ = statement.extra_columns(row)
        if is_readable:
            readable.append(item)
    return readable or None


# The statement


def _statement(call: WriteCall, shape: WriteShape) -> Statement:
    policy = call.context.actor.policy
    # No identity of a version: the statement is kept across changes that do not concern it.
    key = (
        "single statement",
        shape.mutation,
        shape.collection.name,
        shape.columns,
        shape.single,
        shape.row_rules,
        shape.flows,
        call.parsed.query,
        call.parsed.of_one_item,
        len(call.parsed.literals),
        policy.name,
    )
    try:
        hash(shape.row_rules)
    except TypeError:  # a rule that compares with a geometry
        return _NEEDS_TRANSACTION
    snapshot = call.context.snapshot
    statement = cached_statement(call.store, snapshot, key)
    if statement is None:
        catalogue = RecordingCatalogue(snapshot.catalogue)
        # The lookups of the shape's rules are recorded as if the rules were made here.
        record_rules(policy, shape.collection, _VERB_OF_MUTATION[shape.mutation], catalogue)
        statement = _print_statement(call, shape, catalogue)
        snapshot.write_statements[key] = CachedStatement(statement, catalogue.names)
    return statement


def _print_statement(call: WriteCall, shape: WriteShape, catalogue: Catalogue) -> Statement:
    collection = shape.collection
    is_delete = shape.mutation is Delete
    if collection.is_system or hooks_of(call.store, collection.name) is not NO_HOOKS:
        return _NEEDS_TRANSACTION  # its hooks read within a transaction
    if not is_delete and many_to_any_of(catalogue, collection):
        return _NEEDS_TRANSACTION  # the keys at these fields are looked up
    if shape.mutation is Update and not {*collection.key_names}.isdisjoint(shape.columns):
        return _NEEDS_TRANSACTION  # keys with ON UPDATE may change other rows
    if collection.has_side_effects:
        # Triggers or ON UPDATE may change what the statement answers, or keep the row back.
        return _NEEDS_TRANSACTION
    version = len(call.parsed.literals)
    arguments = ArgumentSlots(version + VERSION_SLOTS, shape.single, flows=shape.flows)
    single_statement = SingleStatement(version, before=_before(shape))
    if not is_delete:
        return _print_with_answer(
            call, shape, arguments, single_statement=single_statement, catalogue=catalogue
        )
    if any(_links(_rules_before(shape))):
        return _NEEDS_TRANSACTION  # the row may have waited for another transaction
    if catalogue.deletes_along(collection.name):
        return _NEEDS_TRANSACTION  # other rows are deleted or changed with it
    return number_parameters(write.delete(collection, arguments, single_statement=single_statement))


def _print_with_answer(
    call: WriteCall,
    shape: WriteShape,
    arguments: ArgumentSlots,
    *,
    single_statement: SingleStatement,
    catalogue: Catalogue,
) -> Statement:
    """Return the statement of an insert or update, which answers with the items."""
    collection = shape.collection
    # The statement answers with items, and these callers get none: only a transaction does that.
    if view_of(collection.name, catalogue=catalogue, policy=call.context.actor.policy) is None:
        return _NEEDS_TRANSACTION
    answer = _plan_answer(call, collection, catalogue)
    rule_after = shape.row_rules.after
    after = rule_after.predicate if rule_after else None
    if not _is_independent(shape, answer, after, catalogue=catalogue):
        return _NEEDS_TRANSACTION
    single_statement = replace(
        single_statement, outputs=tuple(top_outputs(answer)), after=_printed(after)
    )
    extra_columns: tuple[str, ...] = ()
    # Where the caller may not read every item, a column beside the items marks those that it may.
    if answer.allowed != EVERY_ROW:
        single_statement = replace(single_statement, readable=predicate(answer.allowed, 0))
        extra_columns = ("readable",)
    print_mutation = write.insert if shape.mutation is Insert else write.update
    columns = [collection.fields[name] for name in shape.columns]
    fragment = print_mutation(collection, columns, arguments, single_statement=single_statement)
    text, values = fragment.numbered()
    sized = _sized(answer, shape)
    return Statement(
        text,
        values,
        tuple((output.key,) for output in answer.outputs),
        extra_columns,
        written_size=written_size(sized),
    )


def _sized(answer: ReadPlan, shape: WriteShape) -> ReadPlan:
    """Return what the size of an answer depends on: nothing belongs to lists of a new row yet."""
    if shape.mutation is not Insert:
        return answer
    outputs = [output for output in answer.outputs if not _is_list(output)]
    return replace(answer, outputs=tuple(outputs))


def _is_list(output: Output) -> bool:
    return isinstance(output, Embed) and output.step.link.to_many


def _printed(condition: Predicate | None) -> Fragment | None:
    if condition is None:
        return None
    return predicate(condition, 0)


def _before(shape: WriteShape) -> StoredRowTests | None:
    """Return the tests of whether the caller knows of the stored row, and may write it."""
    rules = shape.row_rules.before
    if rules is None:
        return None
    return StoredRowTests(
        seen=predicate(rules.known.predicate, 0),
        writable=predicate(rules.writable.predicate, 0),
    )


def _plan_answer(call: WriteCall, collection: Collection, catalogue: Catalogue) -> ReadPlan:
    parsed = call.parsed.query
    sizes = call.store.page
    if call.parsed.of_one_item:
        sizes = sizes.of_one_item
    query = Query(picks=parsed.picks, deep=parsed.deep, checked_only=parsed.checked_only)
    guarded = guard(
        query,
        collection.name,
        catalogue=catalogue,
        policy=call.context.actor.policy,
        bounds=QueryBounds(call.store.depth, sizes.default_window),
    )
    return plan(guarded)


def _is_independent(
    shape: WriteShape, answer: ReadPlan, after: Predicate | None, *, catalogue: Catalogue
) -> bool:
    """Tell whether answer and rules read the same in the write as in a statement after it.

    The statement takes the written rows as they are now, but reads all other rows as they were when
    it began. So the answer and the rules must not lead back to the written collection.
    """
    # An update may have waited for another transaction. Its own row is tested as that one has left
    # it, while a rule that leads to other tables would see them as they were before.
    tested = (answer.allowed, *map(_mask, answer.outputs), *_rules_before(shape), after)
    if shape.mutation is Update and any(_links(tested)):
        return False
    for link in _links((answer.outputs, answer.allowed, after)):
        if link.target == shape.collection.name:
            return False
        # A view may show any table, and so the written one.
        if catalogue.collections[link.target].kind is Kind.VIEW:
            return False
    return True


def _rules_before(shape: WriteShape) -> tuple[Predicate, ...]:
    """Return the rules on the stored row."""
    return tuple(rule.predicate for rule in shape.row_rules.before or ())


def _mask(output: Output) -> object:
    """Return the rule of the rows that show an output, and of several embeds theirs."""
    match output:
        case ValueOutput(_, value):
            return value.when
        case Embed():
            return output.step.when
        case EmbedChoice(_, embeds):
            return tuple(embed.step.when for embed in embeds)


def _links(value: object) -> Iterator[Link]:
    """Yield every link to another collection in a plan or a part of one."""
    if isinstance(value, Link):
        yield value
    # A collection holds no steps of the plan, but much else.
    elif not isinstance(value, Collection):
        for part in inner_parts(value):
            yield from _links(part)
