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
from cms.access.licence import Terms
from cms.errors import forbidden, not_found
from cms.fragment import Fragment
from cms.query import write
from cms.query.ast import Filter, Query, Said
from cms.query.bind import Context, bound
from cms.query.drafts import Batch
from cms.query.expressions import predicate
from cms.query.nesting import nesting_of
from cms.query.plan import plan, resolved
from cms.query.resolved import All, Predicate, ReadPlan
from cms.query.select import top_outputs
from cms.query.sizes import size_of_written
from cms.query.statement import Statement
from cms.query.walk import Link
from cms.query.write import Arguments, Direct
from cms.schema.model import Collection, Kind
from cms.store.counters import check_version
from cms.store.reads import Item
from cms.store.rows import Columns, alike, arrays, author, finished
from cms.store.store import Caller, Scene, Store

_NEVER = Statement("", (), (), ())
"""Stands in the cache for writes of a shape that takes a transaction."""

EVERY_ROW = All(())


@dataclass(frozen=True, slots=True)
class Short:
    """Where a direct write is made and for whom, and what is asked of its answer."""

    store: Store
    scene: Scene
    caller: Caller
    said: Said


@dataclass(frozen=True, slots=True)
class Shape:
    """What writes have in common that are the same statement; `single` is one row."""

    action: str
    collection: Collection
    columns: Columns
    terms: Terms
    single: bool = True


Run = Callable[[], list[Item] | None]
"""Runs a statement, and returns its items as the caller may read them; None where it may read none."""


def inserted(short: Short, root: Batch) -> Run | None:
    """Return what inserts rows and answers them in their order; None where that takes a transaction."""
    rows, rule = [draft.values for draft in root.drafts], root.drafts[0].rule if root.drafts else None
    groups, single = alike(rows), len(rows) == 1
    if len(groups) != 1 or not (single or all(draft.rule is None for draft in root.drafts)):
        return None
    shape = Shape("insert", root.collection, next(iter(groups)), Terms(after=rule), single)
    return _runner(short, shape, arrays(shape.columns, rows, single=single), number=len(rows))


def changed(short: Short, root: Batch, terms: Terms) -> Run | None:
    """Return what changes one row and answers it; None where that takes a transaction."""
    (draft,) = root.drafts
    if not draft.values:
        return None
    columns = (root.key_field, *(name for name in sorted(draft.values) if name != root.key_field))
    values = [draft.key, *(draft.values[name] for name in columns[1:])]
    return _runner(short, Shape("update", root.collection, columns, terms), values)


def deleted(short: Short, collection: Collection, key: str, terms: Terms) -> Run | None:
    """Return what deletes one row; None where that takes a transaction."""
    return _runner(short, Shape("delete", collection, (str(collection.primary_key),), terms), [key])


def _runner(short: Short, shape: Shape, values: Sequence[object], *, number: int = 1) -> Run | None:
    found, scene = _statement(short, shape), short.scene
    if found is _NEVER or _is_much(short, found, number):
        return None
    literals = (*short.said.literals, *author(scene, short.caller), *values)

    def run() -> list[Item] | None:
        context = Context(literals, scene.actor.user, scene.actor.role)
        rows = short.store.database.fetch_primary(found.text, bound(found.values, context))
        check_version(scene.snapshot, found.version(rows))
        items = found.items(rows)
        if not items:
            raise forbidden() if shape.terms.before and rows[0][-1] else not_found()
        if found.counts:
            items = [item for item, row in zip(items, rows, strict=True) if found.rest(row)[0]]
        return items or None

    return run


def _statement(short: Short, shape: Shape) -> Statement:
    query, first, policy = short.said.query, len(short.said.literals), short.scene.actor.policy
    said: Hashable = (shape.action, shape.collection.name, shape.columns, shape.single, shape.terms)
    try:
        hash(said)
    except TypeError:  # a rule that compares with a geometry
        return _NEVER
    key = ("direct", said, query, first, policy)
    return short.scene.snapshot.plans.setdefault_with(key, lambda: _printed(short, shape))


def _printed(short: Short, shape: Shape) -> Statement:
    collection, before = shape.collection, _before(short, shape)
    arguments = Arguments(len(short.said.literals), shape.single)
    direct = Direct(short.scene.snapshot.version, before=before)
    if collection.system or (collection.does_more and (before or shape.action != "delete")):
        return _NEVER  # what keepers mind takes a transaction, and so does what the database does by itself
    if shape.action == "delete" and collection.name in short.scene.snapshot.catalogue.actions.begins:
        return _NEVER  # other rows go or change with it
    if shape.action == "delete":
        return finished(write.delete(collection, arguments, direct=direct))
    if not _is_readable(short, collection):
        return _NEVER
    found, after = _planned(short, collection), _resolved(short, collection, shape.terms.after)
    if not _stands_alone(short, shape, found, after):
        return _NEVER
    hidden = found.allowed != EVERY_ROW
    direct = replace(
        direct,
        outputs=tuple(top_outputs(found)),
        after=None if after is None else predicate(after, 0),
        shown=predicate(found.allowed, 0) if hidden else None,
    )
    printer = write.insert if shape.action == "insert" else write.update
    columns = [collection.fields[name] for name in shape.columns]
    text, values = printer(collection, columns, arguments, direct=direct).numbered()
    paths, counts = tuple((output.key,) for output in found.outputs), ("shown",) if hidden else ()
    nesting, written = nesting_of(found, single=True), size_of_written(found)
    return Statement(text, values, paths, counts, nesting=nesting, written=written)


def _before(short: Short, shape: Shape) -> tuple[Fragment, Fragment] | None:
    if shape.terms.before is None:
        return None
    seen, held = (_resolved(short, shape.collection, rule) for rule in shape.terms.before)
    assert seen is not None
    assert held is not None
    return predicate(seen, 0), predicate(held, 0)


def _resolved(short: Short, collection: Collection, rule: Filter | None) -> Predicate | None:
    return None if rule is None else resolved(rule, collection, short.scene.snapshot.catalogue)


def _is_readable(short: Short, collection: Collection) -> bool:
    scene = short.scene
    return view_of(collection.name, catalogue=scene.snapshot.catalogue, policy=scene.actor.policy) is not None


def _planned(short: Short, collection: Collection) -> ReadPlan:
    store, scene, said = short.store, short.scene, short.said.query
    catalogue, query = scene.snapshot.catalogue, Query(picks=said.picks, deep=said.deep, unshown=said.unshown)
    guarded = guard(
        query,
        collection.name,
        catalogue=catalogue,
        policy=scene.actor.policy,
        depth=store.depth,
        page=store.page.usual,
    )
    return plan(guarded, catalogue)


def _is_much(short: Short, found: Statement, number: int) -> bool:
    """Tell whether the answer may be one of those that a read within a transaction looks at before."""
    if found.nesting is not None and found.nesting.max_rows * number > short.store.max_nested_rows:
        return True
    return found.written is not None and found.written.of(number) > short.store.max_answer_size


def _stands_alone(short: Short, shape: Shape, found: ReadPlan, after: Predicate | None) -> bool:
    """Tell whether the answer and the rules read nothing that the write may have changed; a view may show any table.

    A change may have waited for somebody else's: its row is tried as that has left it, and other tables are seen as
    they were before, so that a rule that leads to them is left to the next statement.
    """
    if shape.action == "update" and any(_links((found.allowed, after))):
        return False
    collections = short.scene.snapshot.catalogue.collections
    targets = {link.target for link in _links((found.outputs, found.allowed, after))}
    return shape.collection.name not in targets and not any(collections[name].kind is Kind.VIEW for name in targets)


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
