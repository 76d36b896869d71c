"""What a revision holds of an item, looked at as if it were the item (decisions, sections 8 and 11)."""

from __future__ import annotations

from collections.abc import Iterator

from cms.query.plan.resolved import (
    All,
    AnyOf,
    Exists,
    LinkStep,
    Predicate,
    RevisionItem,
    SearchMatch,
    TypedTest,
    Value,
)
from cms.schema.model import Collection
from cms.schema.types import Family

_RECORDED_AS_SHOWN = frozenset(
    {Family.TEXT, Family.NUMBER, Family.MOMENT, Family.BOOLEAN, Family.UUID, Family.JSON},
)
_JSON_COLUMNS = frozenset({"json", "jsonb"})


def on_revision_item(where: Predicate, collection: Collection) -> Predicate:
    """Return the condition that what a revision holds fulfils `where`.

    It never does where the history does not keep one of the columns as it is: secrets, lists, shapes. Of several
    alternatives, such as the rules of several permissions, each stands by itself.
    """
    match where:
        case AnyOf(items):
            return AnyOf(tuple(on_revision_item(item, collection) for item in items))
        case All(items) if any(_has_alternatives(item) for item in items):
            return All(tuple(on_revision_item(item, collection) for item in items))
    columns = tuple(dict.fromkeys(_columns(where)))
    kept = all(_is_kept(collection, name) for name in columns)
    return RevisionItem(collection, columns, where) if kept else AnyOf(())


def _has_alternatives(said: Predicate) -> bool:
    match said:
        case AnyOf():
            return True
        case All(items):
            return any(_has_alternatives(item) for item in items)
        case _:
            return False


def _is_kept(collection: Collection, name: str) -> bool:
    found = collection.fields[name]
    column = found.column
    if column is None or found.type.family not in _RECORDED_AS_SHOWN or found.is_text_form:
        return False
    written = found.type.family is Family.JSON and column.base_type not in _JSON_COLUMNS
    return not (found.is_secret or found.is_numeric_boolean or written)


def _columns(said: Predicate) -> Iterator[str]:
    """Yield the columns of its own that a condition looks at."""
    match said:
        case All(items) | AnyOf(items):
            for item in items:
                yield from _columns(item)
        case TypedTest(value) | SearchMatch(value):
            yield from _columns_of(value)
        case Exists(step):
            yield from _columns_of_step(step)
        case RevisionItem():
            raise AssertionError("no revision holds a revision")


def _columns_of(value: Value) -> Iterator[str]:
    if value.step:
        yield from _columns_of_step(value.step)
    else:
        yield value.field.name


def _columns_of_step(step: LinkStep) -> Iterator[str]:
    yield step.link.near
    if step.link.collection_field:
        yield step.link.collection_field
