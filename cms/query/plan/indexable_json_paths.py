"""The paths into JSON by which a read filters or sorts, and which an index would serve."""

from __future__ import annotations

from collections.abc import Iterator

from cms.query.plan.read_plan import (
    All,
    AnyOf,
    Embed,
    EmbedChoice,
    Exists,
    JsonPath,
    JsonTest,
    Order,
    Predicate,
    ReadPlan,
    Value,
)

IndexableJsonPath = tuple[str, str]
"""A collection, and a path as the query language writes it."""


def indexable_json_paths(plan: ReadPlan) -> tuple[IndexableJsonPath, ...]:
    """Return the paths of a read and of the lists in it, each once."""
    return tuple(dict.fromkeys(_of_plan(plan)))


def _of_plan(plan: ReadPlan) -> Iterator[IndexableJsonPath]:
    yield from _of_predicate(plan.allowed)
    yield from _of_predicate(plan.where)
    yield from _of_order(plan.order)
    # Related items are a read of their own, with rules, filter and order.
    for output in plan.outputs:
        match output:
            case Embed():
                yield from _of_plan(output.plan)
            case EmbedChoice(_, embeds):
                for embed in embeds:
                    yield from _of_plan(embed.plan)


def _of_predicate(predicate: Predicate | None) -> Iterator[IndexableJsonPath]:
    match predicate:
        case All(items) | AnyOf(items):
            for item in items:
                yield from _of_predicate(item)
        case Exists(step, where):
            yield from _of_predicate(step.allowed)
            yield from _of_predicate(where)
        case JsonTest(value) if predicate.takes_index:
            yield from _of_value(value)


def _of_order(order: tuple[Order, ...]) -> Iterator[IndexableJsonPath]:
    # An index serves the order by its first term, of the rows themselves.
    if order and not order[0].path:
        yield from _of_value(order[0].value)


def _of_value(value: Value) -> Iterator[IndexableJsonPath]:
    # A field that is hidden in some rows is another expression than that of an index.
    if isinstance(value.at, JsonPath) and value.when is None and value.members is None:
        yield value.field.collection, ".".join((value.field.name, *value.at.steps))
