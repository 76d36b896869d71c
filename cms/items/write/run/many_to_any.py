"""Keys at many-to-any fields, which no foreign key of the database checks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from cms.access.guard import view_of
from cms.errors import Problem, Refused, abbreviated
from cms.items.read.reads import parse_key
from cms.items.write.stages.mutations import AuthorizedSet
from cms.items.write.stages.parsed import PendingKey
from cms.items.write.stages.problems import Problems, no_target_problem
from cms.items.write.stages.resolved_rows import ResolvedRow
from cms.items.write.transaction.executor import Executor
from cms.items.write.transaction.rows import as_stored, column_by_key
from cms.schema.model import Catalogue, Collection, Relation


class _NamedItem(NamedTuple):
    """An item that a row names by its key, and the number of the row."""

    row: int
    target: str
    key: str


def many_to_any_of(catalogue: Catalogue, collection: Collection) -> list[Relation]:
    """Return the relations of the many-to-any fields of a collection."""
    relations: list[Relation] = []
    for name in collection.fields:
        relation = catalogue.by_many.get((collection.name, name))
        if relation is None or not relation.one_allowed_collections:
            continue
        if relation.one_collection_field in collection.fields:
            relations.append(relation)
    return relations


def check_many_to_any(
    executor: Executor, sets: Sequence[AuthorizedSet], problems: Problems
) -> Sequence[AuthorizedSet]:
    """Return authorized sets whose keys at many-to-any fields are those of stored items.

    A key that leads to no item which the caller can see is added to `problems`, whether there is
    such an item or not. A row that keeps what it has is not looked at.
    """
    checked: list[AuthorizedSet] = []
    new_keys = _new_keys(sets)
    for authorized in sets:
        for relation in _relations(executor, authorized.collection):
            authorized = _checked(executor, authorized, relation, new_keys, problems)
        checked.append(authorized)
    return checked


def _relations(executor: Executor, collection: Collection) -> list[Relation]:
    snapshot = executor.context.snapshot
    relations: list[Relation] = snapshot.derived.setdefault_with(
        ("many to any", collection.name),
        lambda: many_to_any_of(snapshot.catalogue, collection),
    )
    return relations


def _new_keys(sets: Sequence[AuthorizedSet]) -> set[tuple[str, str | None]]:
    """Return the keys that the call itself gives to new rows, with their collections."""
    keys: set[tuple[str, str | None]] = set()
    for authorized in sets:
        for row in authorized.rows:
            if row.is_new:
                keys.add((authorized.collection.name, authorized.collection.key_of(row.values)))
    return keys


def _checked(
    executor: Executor,
    authorized: AuthorizedSet,
    relation: Relation,
    new_keys: set[tuple[str, str | None]],
    problems: Problems,
) -> AuthorizedSet:
    collection = authorized.collection
    named = _named_items(executor, authorized, relation, problems)
    stored = _stored_keys(executor, named)
    rows = list(authorized.rows)
    for item in named:
        row = rows[item.row]
        key = stored.get(item)
        if key is None and (item.target, item.key) in new_keys:
            key = item.key
        if key is None:
            problems.add(_missing(collection, relation.many_field, item.key), row.position)
        elif relation.many_field in row.values:
            rows[item.row] = row._replace(values={**row.values, relation.many_field: key})
    return authorized._replace(rows=rows)


def _named_items(
    executor: Executor, authorized: AuthorizedSet, relation: Relation, problems: Problems
) -> list[_NamedItem]:
    """Return the items that rows name anew; adds a problem for a key without its collection."""
    field = relation.many_field
    collection_field = str(relation.one_collection_field)
    numbers = [
        number
        for number, row in enumerate(authorized.rows)
        if field in row.values or collection_field in row.values
    ]
    former = _former_values(executor, authorized, numbers, (field, collection_field))
    named: list[_NamedItem] = []
    for number in numbers:
        row = authorized.rows[number]
        before = former.get(row.key, (None, None))
        key = row.values.get(field, before[0])
        target = row.values.get(collection_field, before[1])
        if key is None or isinstance(key, PendingKey) or (key, target) == before:
            continue
        # What is wrong with either of them was found before.
        if not row.invalid_fields.isdisjoint({field, collection_field}):
            continue
        if target is None:
            problem = no_target_problem(authorized.collection, field, collection_field)
            problems.add(problem, row.position)
        else:
            named.append(_NamedItem(number, target, key))
    return named


def _former_values(
    executor: Executor, authorized: AuthorizedSet, numbers: Sequence[int], fields: tuple[str, str]
) -> Mapping[str | None, tuple[str | None, ...]]:
    """Return what stored rows hold in the fields, by their keys."""
    keys = _keys([authorized.rows[number] for number in numbers])
    if not keys:
        return {}
    collection = authorized.collection
    columns = [column_by_key(executor, collection, collection.fields[f], keys) for f in fields]
    return {key: tuple(column.get(key) for column in columns) for key in keys}


def _keys(rows: Sequence[ResolvedRow]) -> list[str]:
    return [row.key for row in rows if row.key is not None and not row.is_new]


def _stored_keys(executor: Executor, named: Sequence[_NamedItem]) -> Mapping[_NamedItem, str]:
    """Return the stored keys of the items that the caller can see."""
    stored: dict[_NamedItem, str] = {}
    for target in dict.fromkeys(item.target for item in named):
        keys = _keys_as_parsed(executor, target, [item for item in named if item.target == target])
        if keys:
            collection = executor.context.snapshot.catalogue.collections[target]
            texts = as_stored(executor, collection, list(dict.fromkeys(keys.values())))
            visible = executor.readable_keys(target, list(dict.fromkeys(texts.values())))
            for item, key in keys.items():
                if texts[key] in visible:
                    stored[item] = texts[key]
    return stored


def _keys_as_parsed(
    executor: Executor, target: str, items: Sequence[_NamedItem]
) -> dict[_NamedItem, str]:
    """Return the keys as their type writes them; none of a hidden collection."""
    context = executor.context
    catalogue = context.snapshot.catalogue
    view = view_of(target, catalogue=catalogue, policy=context.actor.policy)
    keys: dict[_NamedItem, str] = {}
    if view is None or view.collection.primary_key is None:
        return keys
    for item in items:
        try:
            keys[item] = parse_key(view.collection, item.key)
        except Refused:
            continue
    return keys


def _missing(collection: Collection, field: str, key: str) -> Problem:
    extensions = {"collection": collection.name, "field": field, "value": abbreviated(key)}
    return Problem("INVALID_FOREIGN_KEY", "A key points to an item that is not there.", extensions)
