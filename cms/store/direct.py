"""One item, or items that are alike, in one statement outside any transaction: what nearly all writes are.

It checks the counters, writes the rows with their history, and answers from the rows that it has just written. That
answer is the same as a read after the write where no relation that it opens leads back to the written collection, and
where no trigger changes rows behind the statement.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass, fields, is_dataclass

from cms.access.guard import guard, view_of
from cms.errors import not_found
from cms.query import write
from cms.query.ast import Query, Said
from cms.query.bind import Context, bound
from cms.query.plan import plan
from cms.query.resolved import All, ReadPlan
from cms.query.select import top_outputs
from cms.query.statement import Statement
from cms.query.walk import Link
from cms.query.write import Arguments, Direct
from cms.schema.model import Collection, Kind
from cms.schema.payload import Values
from cms.store.reads import Item
from cms.store.rows import Columns, alike, arrays, author, finished
from cms.store.store import Caller, Scene, Store, check_version

_NEVER = Statement("", (), (), ())
"""Stands in the cache for writes of a shape that takes a transaction."""


@dataclass(frozen=True, slots=True)
class Short:
    """Where a direct write is made and for whom, and what is asked of its answer."""

    store: Store
    scene: Scene
    caller: Caller
    said: Said


def inserted(short: Short, collection: Collection, rows: Sequence[Values]) -> Callable[[], list[Item]] | None:
    """Return what inserts rows and answers them in their order; None where that takes a transaction."""
    groups = alike(rows)
    if len(groups) != 1:
        return None
    columns, single = next(iter(groups)), len(rows) == 1
    found = _statement(short, "insert", collection, columns, single=single)
    return _runner(short, found, arrays(columns, rows, single=single))


def changed(short: Short, collection: Collection, key: str, values: Values) -> Callable[[], list[Item]] | None:
    """Return what changes one row and answers it; None where that takes a transaction."""
    if not values:
        return None
    key_field = str(collection.primary_key)
    columns = (key_field, *(name for name in sorted(values) if name != key_field))
    found = _statement(short, "update", collection, columns, single=True)
    return _runner(short, found, [key, *(values[name] for name in columns[1:])])


def deleted(short: Short, collection: Collection, key: str) -> Callable[[], list[Item]] | None:
    """Return what deletes one row; None where that takes a transaction."""
    found = _statement(short, "delete", collection, (str(collection.primary_key),), single=True)
    return _runner(short, found, [key])


def _runner(short: Short, found: Statement, values: list[object]) -> Callable[[], list[Item]] | None:
    if found is _NEVER:
        return None
    scene = short.scene
    literals = (*short.said.literals, *author(scene, short.caller), *values)

    def run() -> list[Item]:
        context = Context(literals, scene.actor.user, scene.actor.role)
        rows = short.store.database.fetch_primary(found.text, bound(found.values, context))
        check_version(scene.snapshot, found.version(rows))
        items = found.items(rows)
        if not items:
            raise not_found()
        return items

    return run


def _statement(short: Short, action: str, collection: Collection, columns: Columns, *, single: bool) -> Statement:
    query, first, policy = short.said.query, len(short.said.literals), short.scene.actor.policy
    key: Hashable = ("direct", action, collection.name, columns, single, query, first, policy)

    def make() -> Statement:
        if collection.system:  # what keepers mind takes a transaction
            return _NEVER
        arguments, version = Arguments(first, single), short.scene.snapshot.version
        if action == "delete":
            return finished(write.delete(collection, arguments, direct=Direct(version)))
        if collection.triggers or not _is_readable(short, collection):
            return _NEVER
        printer = write.insert if action == "insert" else write.update
        found = _planned(short, collection)
        if not _stands_alone(short, found):
            return _NEVER
        chosen = [collection.fields[name] for name in columns]
        fragment = printer(collection, chosen, arguments, direct=Direct(version, tuple(top_outputs(found))))
        text, values = fragment.numbered()
        return Statement(text, values, tuple((output.key,) for output in found.outputs), ())

    return short.scene.snapshot.plans.get(key, make)


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


def _stands_alone(short: Short, found: ReadPlan) -> bool:
    """Tell whether the answer reads nothing that the write may have changed; a view may show any table."""
    collections = short.scene.snapshot.catalogue.collections
    targets = {link.target for link in _links(found)}
    views = any(collections[target].kind is Kind.VIEW for target in targets)
    alone = found.where == All(()) and found.allowed == All(())
    return alone and found.collection.name not in targets and not views


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
