"""One item, or items that are alike, in one statement outside any transaction: what nearly all writes are.

It checks the counters, writes the rows with their history, and answers from the rows that it has just written. That
answer is the same as a read after the write where no relation that it opens leads back to the written collection, and
where no trigger changes rows behind the statement. So are the rules of permissions, which it tries on the row as it
was and as it is.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass, fields, is_dataclass, replace

from cms.access.guard import guard, view_of
from cms.access.licence import Terms
from cms.errors import forbidden, not_found
from cms.query import write
from cms.query.ast import Query, Said
from cms.query.bind import Context, bound
from cms.query.drafts import Batch
from cms.query.expressions import predicate
from cms.query.plan import plan, resolved
from cms.query.resolved import All, Predicate, ReadPlan
from cms.query.select import top_outputs
from cms.query.statement import Statement
from cms.query.walk import Link
from cms.query.write import Arguments, Direct
from cms.schema.model import Catalogue, Collection, Kind
from cms.store.reads import Item
from cms.store.rows import Columns, alike, arrays, author, finished
from cms.store.store import Caller, Scene, Store, check_version

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


def inserted(short: Short, root: Batch) -> Callable[[], list[Item] | None] | None:
    """Return what inserts rows and answers them in their order; None where that takes a transaction."""
    rows, rule = [draft.values for draft in root.drafts], root.drafts[0].rule if root.drafts else None
    groups, single = alike(rows), len(rows) == 1
    if len(groups) != 1 or not (single or all(draft.rule is None for draft in root.drafts)):
        return None
    columns, terms = next(iter(groups)), Terms(after=rule)
    found = _statement(short, "insert", root.collection, columns, single=single, terms=terms)
    return _runner(short, found, terms, arrays(columns, rows, single=single))


def changed(short: Short, root: Batch, terms: Terms) -> Callable[[], list[Item] | None] | None:
    """Return what changes one row and answers it; None where that takes a transaction."""
    (draft,) = root.drafts
    if not draft.values:
        return None
    columns = (root.key_field, *(name for name in sorted(draft.values) if name != root.key_field))
    found = _statement(short, "update", root.collection, columns, single=True, terms=terms)
    return _runner(short, found, terms, [draft.key, *(draft.values[name] for name in columns[1:])])


def deleted(short: Short, collection: Collection, key: str, terms: Terms) -> Callable[[], list[Item] | None] | None:
    """Return what deletes one row; None where that takes a transaction."""
    columns = (str(collection.primary_key),)
    found = _statement(short, "delete", collection, columns, single=True, terms=terms)
    return _runner(short, found, terms, [key])


def _runner(
    short: Short, found: Statement, terms: Terms, values: list[object]
) -> Callable[[], list[Item] | None] | None:
    if found is _NEVER:
        return None
    scene = short.scene
    literals = (*short.said.literals, *author(scene, short.caller), *values)

    def run() -> list[Item] | None:
        context = Context(literals, scene.actor.user, scene.actor.role)
        rows = short.store.database.fetch_primary(found.text, bound(found.values, context))
        check_version(scene.snapshot, found.version(rows))
        items = found.items(rows)
        if not items:
            raise forbidden() if terms.before and rows[0][-1] else not_found()
        if found.counts:
            items = [item for item, row in zip(items, rows, strict=True) if found.rest(row)[0]]
        return items or None

    return run


def _statement(
    short: Short, action: str, collection: Collection, columns: Columns, *, single: bool, terms: Terms
) -> Statement:
    query, first, policy = short.said.query, len(short.said.literals), short.scene.actor.policy
    key: Hashable = ("direct", action, collection.name, columns, single, query, first, policy, terms)

    def make() -> Statement:
        catalogue = short.scene.snapshot.catalogue
        if collection.system:  # what keepers mind takes a transaction
            return _NEVER
        arguments, direct = Arguments(first, single), Direct(short.scene.snapshot.version)
        if terms.before:
            seen, held = (predicate(resolved(rule, collection, catalogue), 0) for rule in terms.before)
            direct = replace(direct, before=(seen, held))
        if action == "delete":
            return finished(write.delete(collection, arguments, direct=direct))
        if collection.triggers or not _is_readable(short, collection):
            return _NEVER
        found, after = _planned(short, collection), _after(terms, collection, catalogue)
        if not _stands_alone(short, collection, (found.outputs, found.allowed, after)):
            return _NEVER
        hidden = found.allowed != EVERY_ROW
        direct = replace(
            direct,
            outputs=tuple(top_outputs(found)),
            after=None if after is None else predicate(after, 0),
            shown=predicate(found.allowed, 0) if hidden else None,
        )
        printer = write.insert if action == "insert" else write.update
        text, values = printer(
            collection, [collection.fields[name] for name in columns], arguments, direct=direct
        ).numbered()
        paths = tuple((output.key,) for output in found.outputs)
        return Statement(text, values, paths, ("shown",) if hidden else ())

    return short.scene.snapshot.plans.get(key, make)


def _after(terms: Terms, collection: Collection, catalogue: Catalogue) -> Predicate | None:
    return None if terms.after is None else resolved(terms.after, collection, catalogue)


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


def _stands_alone(short: Short, collection: Collection, parts: tuple[object, ...]) -> bool:
    """Tell whether parts of a plan read nothing that the write may have changed; a view may show any table."""
    collections = short.scene.snapshot.catalogue.collections
    targets = {link.target for link in _links(parts)}
    return collection.name not in targets and not any(collections[target].kind is Kind.VIEW for target in targets)


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
