"""Conditions on the item in a revision, as if it were the item itself."""

from __future__ import annotations

from collections.abc import Iterator

from cms.query.plan.read_plan import (
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
from cms.schema.model import Collection, Field


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
        yield value.field.name


def _columns_of_step(step: LinkStep) -> Iterator[str]:
    yield step.link.near
    if step.link.collection_field:
        yield step.link.collection_field
