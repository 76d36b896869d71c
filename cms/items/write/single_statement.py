"""One item, or items that name the same fields, in one statement outside any transaction.

Nearly all writes are made this way. The statement checks the counters, writes the rows with their
history, and answers from the rows that it has just written. That answer is the same as a read after
the write where no relation that it opens leads back to the written collection, and where no trigger
changes rows behind the statement. The same holds for the rules of permissions, which the statement
tests on the row as it was and as it is.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace

from cms.access.guard import guard, view_of
from cms.access.write_permissions import RowRules
from cms.database.error_mapping import Conflict
from cms.errors import forbidden, not_found
from cms.fragment import Fragment
from cms.items.write.calls import WriteCall, WrittenItems
from cms.items.write.conflicts import locating_conflicts
from cms.items.write.executor import author, finish_statement
from cms.items.write.inquiry import PayloadInquiry, asked_set
from cms.items.write.resolved_rows import ResolvedSet
from cms.items.write.rows import ColumnNames, column_values, group_by_columns
from cms.query.language.ast import Query
from cms.query.plan.bindings import Bindings, bind_values
from cms.query.plan.links import Link
from cms.query.plan.nesting import list_levels
from cms.query.plan.plan import plan
from cms.query.plan.resolved import EVERY_ROW, Predicate, ReadPlan
from cms.query.plan.sizes import written_size
from cms.query.sql import write
from cms.query.sql.arguments import ArgumentSlots
from cms.query.sql.expressions import predicate
from cms.query.sql.select import top_outputs
from cms.query.sql.statement import Statement
from cms.query.sql.write import SingleStatement
from cms.schema.model import Collection, Kind
from cms.store.counters import check_version

_NEEDS_TRANSACTION = Statement("", (), (), ())
"""Stands in the cache for writes of a shape that takes a transaction."""


@dataclass(frozen=True, slots=True)
class WriteShape:
    """What writes that are the same statement have in common; `single` is one row."""

    action: str
    collection: Collection
    columns: ColumnNames
    row_rules: RowRules
    single: bool = True


@dataclass(frozen=True, slots=True)
class StatementRun:
    """A statement that is all of a call, with the literals of the call.

    `root` are the rows that it writes, None for a deletion.
    """

    call: WriteCall
    shape: WriteShape
    statement: Statement
    literals: Sequence[object]
    root: ResolvedSet | None = None

    def run(self) -> WrittenItems:
        """Run it and return its items as the caller may read them; None where it may not.

        Raises `Refused` with the row whose value the database refuses.
        """
        if self.root is None:
            return self._run()
        try:
            with locating_conflicts(self.root.collection, self.root.rows):
                return self._run()
        except Conflict as conflict:
            # The statement reaches its values only after the caller was found to be permitted.
            catalogue = self.call.context.snapshot.catalogue
            asked = asked_set(self.root)
            conflict.inquiry = PayloadInquiry(catalogue, [asked], is_permitted=True)
            raise

    def _run(self) -> WrittenItems:
        context = self.call.context
        statement = self.statement
        bindings = Bindings(self.literals, context.actor.user, context.actor.role)
        parameters = bind_values(statement.values, bindings)
        rows = self.call.store.database.fetch_primary(statement.text, parameters)
        check_version(context.snapshot, statement.version(rows))
        items = statement.items(rows)
        if not items:
            # The last column of the one row is whether the caller sees the stored row.
            is_visible = self.shape.row_rules.before and rows[0][-1]
            raise forbidden() if is_visible else not_found()
        if not statement.counts:
            return items
        pairs = zip(items, rows, strict=True)
        return [item for item, row in pairs if statement.extra_columns(row)[0]] or None


def plan_insert(call: WriteCall, root: ResolvedSet) -> StatementRun | None:
    """Return what inserts rows, and answers them in their order; None for a transaction."""
    rows = [row.values for row in root.rows]
    groups = group_by_columns(rows)
    if len(groups) != 1:
        return None
    single = len(rows) == 1
    # The statement tests one rule, and several rows may each have their own.
    if not single and any(row.rule is not None for row in root.rows):
        return None
    columns = next(iter(groups))
    row_rules = RowRules(after=root.rows[0].rule)
    shape = WriteShape("insert", root.collection, columns, row_rules, single)
    return _plan(call, shape, column_values(columns, rows, single=single), root)


def plan_update(call: WriteCall, root: ResolvedSet, row_rules: RowRules) -> StatementRun | None:
    """Return what changes one row and answers it; None for a transaction."""
    (row,) = root.rows
    if not row.values:
        return None
    names = [name for name in sorted(row.values) if name != root.key_field]
    values = [row.key, *(row.values[name] for name in names)]
    shape = WriteShape("update", root.collection, (root.key_field, *names), row_rules)
    return _plan(call, shape, values, root)


def plan_delete(call: WriteCall, key: str, row_rules: RowRules) -> StatementRun | None:
    """Return what deletes one row; None for a transaction."""
    columns = (str(call.collection.primary_key),)
    return _plan(call, WriteShape("delete", call.collection, columns, row_rules), [key])


def _plan(
    call: WriteCall, shape: WriteShape, values: Sequence[object], root: ResolvedSet | None = None
) -> StatementRun | None:
    statement = _statement(call, shape)
    row_count = len(root.rows) if root else 1
    # A write whose answer turns out too large must be undone, which takes a transaction.
    if statement is _NEEDS_TRANSACTION or _may_be_large(call, statement, row_count):
        return None
    literals = (*call.parsed.literals, *author(call.context, call.client), *values)
    return StatementRun(call, shape, statement, literals, root)


# The statement


def _statement(call: WriteCall, shape: WriteShape) -> Statement:
    key = (
        "single statement",
        shape.action,
        shape.collection.name,
        shape.columns,
        shape.single,
        shape.row_rules,
        call.parsed.query,
        len(call.parsed.literals),
        call.context.actor.policy,
    )
    try:
        hash(shape.row_rules)
    except TypeError:  # a rule that compares with a geometry
        return _NEEDS_TRANSACTION
    return call.context.snapshot.statements.setdefault_with(
        key, lambda: _print_statement(call, shape)
    )


def _print_statement(call: WriteCall, shape: WriteShape) -> Statement:
    """Return the statement of a shape, or `_NEEDS_TRANSACTION`."""
    collection = shape.collection
    is_delete = shape.action == "delete"
    if collection.is_system:
        return _NEEDS_TRANSACTION  # its hooks read within a transaction
    if collection.has_side_effects and (shape.row_rules.before or not is_delete):
        return _NEEDS_TRANSACTION  # the database itself changes more than the statement says
    arguments = ArgumentSlots(len(call.parsed.literals), shape.single)
    version = call.context.snapshot.version
    single_statement = SingleStatement(version, before=_before(shape))
    if not is_delete:
        return _print_with_answer(call, shape, arguments, single_statement)
    if collection.name in call.context.snapshot.catalogue.actions.root_tables_of:
        return _NEEDS_TRANSACTION  # other rows are deleted or changed with it
    return finish_statement(write.delete(collection, arguments, single_statement=single_statement))


def _print_with_answer(
    call: WriteCall, shape: WriteShape, arguments: ArgumentSlots, single_statement: SingleStatement
) -> Statement:
    """Return the statement of an insert or update, which answers with the items."""
    collection = shape.collection
    catalogue = call.context.snapshot.catalogue
    if view_of(collection.name, catalogue=catalogue, policy=call.context.actor.policy) is None:
        return _NEEDS_TRANSACTION
    answer = _plan_answer(call, collection)
    rule_after = shape.row_rules.after
    after = None if rule_after is None else rule_after.predicate
    if not _stands_alone(call, shape, answer, after):
        return _NEEDS_TRANSACTION
    # Where the caller may not read every item, the statement marks those that it may.
    is_partly_hidden = answer.allowed != EVERY_ROW
    single_statement = replace(
        single_statement,
        outputs=tuple(top_outputs(answer)),
        after=None if after is None else predicate(after, 0),
        shown=predicate(answer.allowed, 0) if is_partly_hidden else None,
    )
    printer = write.insert if shape.action == "insert" else write.update
    columns = [collection.fields[name] for name in shape.columns]
    fragment = printer(collection, columns, arguments, single_statement=single_statement)
    text, values = fragment.numbered()
    return Statement(
        text,
        values,
        tuple((output.key,) for output in answer.outputs),
        ("shown",) if is_partly_hidden else (),
        nesting=list_levels(answer, single=True),
        written_size=written_size(answer),
    )


def _before(shape: WriteShape) -> tuple[Fragment, Fragment] | None:
    """Return the tests of whether the stored row is visible, and whether it may be written."""
    if shape.row_rules.before is None:
        return None
    visible, writable = shape.row_rules.before
    return predicate(visible.predicate, 0), predicate(writable.predicate, 0)


def _plan_answer(call: WriteCall, collection: Collection) -> ReadPlan:
    catalogue = call.context.snapshot.catalogue
    parsed = call.parsed.query
    query = Query(picks=parsed.picks, deep=parsed.deep, checked_only=parsed.checked_only)
    guarded = guard(
        query,
        collection.name,
        catalogue=catalogue,
        policy=call.context.actor.policy,
        depth=call.store.depth,
        page=call.store.page.default_window,
    )
    return plan(guarded)


def _may_be_large(call: WriteCall, statement: Statement, row_count: int) -> bool:
    """Tell whether the answer may be so large that a read in a transaction has to estimate it."""
    nesting = statement.nesting
    if nesting is not None and nesting.max_rows * row_count > call.store.max_nested_rows:
        return True
    written = statement.written_size
    return written is not None and written.of(row_count) > call.store.max_answer_size


def _stands_alone(
    call: WriteCall, shape: WriteShape, answer: ReadPlan, after: Predicate | None
) -> bool:
    """Tell whether answer and rules read nothing that the write may have changed.

    An update may have waited for another transaction: its own row is tested as that one has left
    it, but other tables are seen as they were before. A rule that leads to them is left to the
    next statement. A view may show any table, and so the written one.
    """
    if shape.action == "update" and any(_links((answer.allowed, after))):
        return False
    collections = call.context.snapshot.catalogue.collections
    targets = {link.target for link in _links((answer.outputs, answer.allowed, after))}
    reads_views = any(collections[name].kind is Kind.VIEW for name in targets)
    return shape.collection.name not in targets and not reads_views


def _links(value: object) -> Iterator[Link]:
    """Yield every step of a plan from one collection to another, wherever it stands in the plan."""
    if isinstance(value, Link):
        yield value
    elif isinstance(value, tuple):
        for item in value:
            yield from _links(item)
    elif is_dataclass(value) and not isinstance(value, Collection):
        for each in fields(value):
            yield from _links(getattr(value, each.name))
