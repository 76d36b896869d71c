"""The condition that a row of the history is about an item which the caller may see."""

from __future__ import annotations

from collections.abc import Iterator

from cms.query.language.ast import Constant
from cms.query.plan.conditions import typed_test
from cms.query.plan.guarded import GuardedTest
from cms.query.plan.links import history_item_link
from cms.query.plan.read_plan import (
    EVERY_ROW,
    NO_ROW,
    All,
    AnyOf,
    Exists,
    JsonTest,
    LinkStep,
    Predicate,
    RevisionItem,
    SearchMatch,
    SharedMask,
    TypedTest,
    Value,
)
from cms.schema.model import Catalogue, Collection, Field


def about_item(
    history: Collection, item_collection: Collection, rule: Predicate, catalogue: Catalogue
) -> Predicate:
    """Return the condition that a row of `history` is about an item that fulfils the rule.

    A revision also holds the item as it was; the rule is tried on that, too. The items must have a
    primary key.
    """
    conditions: list[Predicate] = [_is("collection", "_eq", item_collection.name, history)]
    # Rows up to this one are about items that had this name and key before. If a collection is
    # deleted and another one created with its name, the rules of the new one must not show the
    # history of the former.
    if last := item_collection.former_history.get(history.name):
        conditions = [All((*conditions, _is("id", "_gt", last, history)))]
    if rule == EVERY_ROW:
        return conditions[0]
    link = history_item_link(catalogue, history, item_collection.name)
    assert link, "the items have a key"
    # A page of the history names few items, of collections that may have many.
    conditions.append(Exists(LinkStep(link), rule, per_row=True))
    # Otherwise a revision would show an item as it was before it fulfilled the rule.
    if "data" in history.fields:
        conditions.append(on_revision_item(rule, item_collection))
    return All(tuple(conditions))


def _is(field: str, operator: str, value: object, history: Collection) -> Predicate:
    test = GuardedTest(operator, (Constant(value),))
    return typed_test(test, Value(history.fields[field]))


# The item in a revision, as if it were the item itself


def on_revision_item(where: Predicate, collection: Collection) -> Predicate:
    """Return the condition that the item in a revision fulfils `where`.

    It is false if it reads a column whose exact value the history does not keep: secrets, lists,
    geometries. Alternatives, such as the rules of several permissions, are decided one by one.
    """
    # One part that cannot be decided makes a whole condition false; an alternative may still hold.
    match where:
        case AnyOf(items):
            return AnyOf(_all_on_revision_item(items, collection))
        # An AND of plain tests stays together, as one sub-select.
        case All(items) if any(map(_has_alternatives, items)):
            return All(_all_on_revision_item(items, collection))
        case _:
            return _undivided(where, collection)


def _all_on_revision_item(
    conditions: tuple[Predicate, ...], collection: Collection
) -> tuple[Predicate, ...]:
    return tuple(on_revision_item(condition, collection) for condition in conditions)


def _undivided(where: Predicate, collection: Collection) -> Predicate:
    # Only columns of the item itself: rows that it leads to are read as they are today.
    columns = tuple(dict.fromkeys(_columns(where)))
    for name in columns:
        if not _is_kept(collection.fields[name]):
            return NO_ROW
    return RevisionItem(collection, columns, where)


def _has_alternatives(predicate: Predicate) -> bool:
    match predicate:
        case AnyOf():
            return True
        case All(items):
            return any(map(_has_alternatives, items))
        case _:
            return False


def _is_kept(field: Field) -> bool:
    return field.column is not None and field.type.is_kept_in_history and not field.is_secret


def _columns(predicate: Predicate) -> Iterator[str]:
    """Yield the columns of the item itself that a condition reads."""
    match predicate:
        case All(items) | AnyOf(items):
            for item in items:
                yield from _columns(item)
        case TypedTest(value) | JsonTest(value) | SearchMatch(value):
            yield from _columns_of(value)
        case Exists(step):
            yield from _columns_of_step(step)
        case RevisionItem() | SharedMask():
            raise AssertionError("no rule holds a revision, or the result of a rule")


def _columns_of(value: Value) -> Iterator[str]:
    if value.step:
        yield from _columns_of_step(value.step)
    else:
        for field in value.field.key_fields:
            yield field.name


def _columns_of_step(step: LinkStep) -> Iterator[str]:
    for field in step.link.near.key_fields:
        yield field.name
    if step.link.collection_field:
        yield step.link.collection_field
