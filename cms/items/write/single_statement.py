"""One item, or items that are alike, in one statement outside any transaction: what nearly all writes are.

It checks the counters, writes the rows with their history, and answers from the rows that it has just written. That
answer is the same as a read after the write where no relation that it opens leads back to the written collection, and
where no trigger changes rows behind the statement. So are the rules of permissions, which it tries on the row as it
was and as it is.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace

from cms.access.guard import guard, view_of
from cms.access.write_permissions import RowRules
from cms.errors import forbidden, not_found
from cms.fragment import Fragment
from cms.items.read.reads import Item
from cms.items.write.changes import ChangeSet
from cms.items.write.rows import Columns, author, column_values, finish_statement, group_by_columns
from cms.query.language.ast import Filter, ParsedQuery, Query
from cms.query.plan.bindings import Bindings, bind_values
from cms.query.plan.links import Link
from cms.query.plan.nesting import list_levels
from cms.query.plan.plan import plan, resolve_rule
from cms.query.plan.resolved import All, Predicate, ReadPlan
from cms.query.plan.sizes import written_size
from cms.query.sql import write
from cms.query.sql.expressions import predicate
from cms.query.sql.select import top_outputs
from cms.query.sql.statement import Statement
from cms.query.sql.write import ArgumentSlots, SingleStatement
from cms.schema.model import Collection, Kind
from cms.store.context import RequestContext
from cms.store.counters import check_version
from cms.store.identity import ClientInfo
from cms.store.store import Store

_NEEDS_TRANSACTION = Statement("", (), (), ())
"""Stands in the cache for writes of a shape that takes a transaction."""

EVERY_ROW = All(())


@dataclass(frozen=True, slots=True)
class SingleWrite:
    """Where a direct write is made and for whom, and what is asked of its answer."""

    store: Store
    context: RequestContext
    client: ClientInfo
    parsed: ParsedQuery


@dataclass(frozen=True, slots=True)
class WriteShape:
    """What writes have in common that are the same statement; `single` is one row."""

    action: str
    collection: Collection
    columns: Columns
    terms: RowRules
    single: bool = True


RunStatement = Callable[[], list[Item] | None]
"""Runs a statement, and returns its items as the caller may read them; None where it may read none."""


def plan_insert(single_write: SingleWrite, root: ChangeSet) -> RunStatement | None:
    """Return what inserts rows and answers them in their order; None where that takes a transaction."""
    rows, rule = (
        [draft.values for draft in root.drafts],
        root.drafts[0].rule if root.drafts else None,
    )
    groups, single = group_by_columns(rows), len(rows) == 1
    if len(groups) != 1 or not (single or all(draft.rule is None for draft in root.drafts)):
        return None
    shape = WriteShape("insert", root.collection, next(iter(groups)), RowRules(after=rule), single)
    return _runner(
        single_write, shape, column_values(shape.columns, rows, single=single), number=len(rows)
    )


def plan_update(single_write: SingleWrite, root: ChangeSet, terms: RowRules) -> RunStatement | None:
    """Return what changes one row and answers it; None where that takes a transaction."""
    (draft,) = root.drafts
    if not draft.values:
        return None
    columns = (root.key_field, *(name for name in sorted(draft.values) if name != root.key_field))
    values = [draft.key, *(draft.values[name] for name in columns[1:])]
    return _runner(single_write, WriteShape("update", root.collection, columns, terms), values)


def plan_delete(
    single_write: SingleWrite, collection: Collection, key: str, terms: RowRules
) -> RunStatement | None:
    """Return what deletes one row; None where that takes a transaction."""
    return _runner(
        single_write, WriteShape("delete", collection, (str(collection.primary_key),), terms), [key]
    )


def _runner(
    single_write: SingleWrite, shape: WriteShape, values: Sequence[object], *, number: int = 1
) -> RunStatement | None:
    found, context = _statement(single_write, shape), single_write.context
    if found is _NEEDS_TRANSACTION or _may_be_large(single_write, found, number):
        return None
    literals = (*single_write.parsed.literals, *author(context, single_write.client), *values)

    def run() -> list[Item] | None:
        bindings = Bindings(literals, context.actor.user, context.actor.role)
        rows = single_write.store.database.fetch_primary(
            found.text, bind_values(found.values, bindings)
        )
        check_version(context.snapshot, found.version(rows))
        items = found.items(rows)
        if not items:
            raise forbidden() if shape.terms.before and rows[0][-1] else not_found()
        if found.counts:
            items = [
                item for item, row in zip(items, rows, strict=True) if found.extra_columns(row)[0]
            ]
        return items or None

    return run


def _statement(single_write: SingleWrite, shape: WriteShape) -> Statement:
    query, first, policy = (
        single_write.parsed.query,
        len(single_write.parsed.literals),
        single_write.context.actor.policy,
    )
    parsed: Hashable = (
        shape.action,
        shape.collection.name,
        shape.columns,
        shape.single,
        shape.terms,
    )
    try:
        hash(parsed)
    except TypeError:  # a rule that compares with a geometry
        return _NEEDS_TRANSACTION
    key = ("direct", parsed, query, first, policy)
    return single_write.context.snapshot.statements.setdefault_with(
        key, lambda: _print_statement(single_write, shape)
    )


def _print_statement(single_write: SingleWrite, shape: WriteShape) -> Statement:
    collection, before = shape.collection, _before(single_write, shape)
    arguments = ArgumentSlots(len(single_write.parsed.literals), shape.single)
    single_statement = SingleStatement(single_write.context.snapshot.version, before=before)
    if collection.system or (collection.has_side_effects and (before or shape.action != "delete")):
        return _NEEDS_TRANSACTION  # what keepers mind takes a transaction, and so does what the database does by itself
    if (
        shape.action == "delete"
        and collection.name in single_write.context.snapshot.catalogue.actions.root_tables_of
    ):
        return _NEEDS_TRANSACTION  # other rows go or change with it
    if shape.action == "delete":
        return finish_statement(
            write.delete(collection, arguments, single_statement=single_statement)
        )
    if not _is_readable(single_write, collection):
        return _NEEDS_TRANSACTION
    found, after = (
        _plan_answer(single_write, collection),
        _resolved(single_write, collection, shape.terms.after),
    )
    if not _stands_alone(single_write, shape, found, after):
        return _NEEDS_TRANSACTION
    hidden = found.allowed != EVERY_ROW
    single_statement = replace(
        single_statement,
        outputs=tuple(top_outputs(found)),
        after=None if after is None else predicate(after, 0),
        shown=predicate(found.allowed, 0) if hidden else None,
    )
    printer = write.insert if shape.action == "insert" else write.update
    columns = [collection.fields[name] for name in shape.columns]
    text, values = printer(
        collection, columns, arguments, single_statement=single_statement
    ).numbered()
    paths, counts = tuple((output.key,) for output in found.outputs), ("shown",) if hidden else ()
    nesting, written = list_levels(found, single=True), written_size(found)
    return Statement(text, values, paths, counts, nesting=nesting, written_size=written)


def _before(single_write: SingleWrite, shape: WriteShape) -> tuple[Fragment, Fragment] | None:
    if shape.terms.before is None:
        return None
    seen, held = (_resolved(single_write, shape.collection, rule) for rule in shape.terms.before)
    assert seen is not None
    assert held is not None
    return predicate(seen, 0), predicate(held, 0)


def _resolved(
    single_write: SingleWrite, collection: Collection, rule: Filter | None
) -> Predicate | None:
    return (
        None
        if rule is None
        else resolve_rule(rule, collection, single_write.context.snapshot.catalogue)
    )


def _is_readable(single_write: SingleWrite, collection: Collection) -> bool:
    context = single_write.context
    return (
        view_of(collection.name, catalogue=context.snapshot.catalogue, policy=context.actor.policy)
        is not None
    )


def _plan_answer(single_write: SingleWrite, collection: Collection) -> ReadPlan:
    store, context, parsed = single_write.store, single_write.context, single_write.parsed.query
    catalogue, query = (
        context.snapshot.catalogue,
        Query(picks=parsed.picks, deep=parsed.deep, checked_only=parsed.checked_only),
    )
    guarded = guard(
        query,
        collection.name,
        catalogue=catalogue,
        policy=context.actor.policy,
        depth=store.depth,
        page=store.page.default_window,
    )
    return plan(guarded, catalogue)


def _may_be_large(single_write: SingleWrite, found: Statement, number: int) -> bool:
    """Tell whether the answer may be one of those that a read within a transaction looks at before."""
    if (
        found.nesting is not None
        and found.nesting.max_rows * number > single_write.store.max_nested_rows
    ):
        return True
    return (
        found.written_size is not None
        and found.written_size.of(number) > single_write.store.max_answer_size
    )


def _stands_alone(
    single_write: SingleWrite, shape: WriteShape, found: ReadPlan, after: Predicate | None
) -> bool:
    """Tell whether the answer and the rules read nothing that the write may have changed; a view may show any table.

    A change may have waited for somebody else's: its row is tried as that has left it, and other tables are seen as
    they were before, so that a rule that leads to them is left to the next statement.
    """
    if shape.action == "update" and any(_links((found.allowed, after))):
        return False
    collections = single_write.context.snapshot.catalogue.collections
    targets = {link.target for link in _links((found.outputs, found.allowed, after))}
    return shape.collection.name not in targets and not any(
        collections[name].kind is Kind.VIEW for name in targets
    )


def _links(value: object) -> Iterator[Link]:
    """Yield every step that a plan takes from one collection to another, wherever it stands in the plan."""
    if isinstance(value, Link):
        yield value
    elif isinstance(value, tuple):
        for item in value:
            yield from _links(item)
    elif is_dataclass(value) and not isinstance(value, Collection):
        for each in fields(value):
            yield from _links(getattr(value, each.name))
