"""Where the values of an answer stand in its items."""

from __future__ import annotations

from collections.abc import Iterator

from cms.query.plan.read_plan import AggregateValue, Grouping, ReadPlan

KeyPath = tuple[str, ...]
"""The keys that lead to a value in an item of the answer."""


def output_paths(plan: ReadPlan) -> tuple[KeyPath, ...]:
    """Return the paths of a level's values, in order: of outputs, or groups and aggregates."""
    if plan.grouping is None:
        return tuple((output.key,) for output in plan.outputs)
    return tuple(_group_paths(plan.grouping))


def _group_paths(grouping: Grouping) -> Iterator[KeyPath]:
    for group in grouping.groups:
        yield (group.key,)
    for aggregate in grouping.aggregates:
        yield _aggregate_path(aggregate, grouping)


def _aggregate_path(aggregate: AggregateValue, grouping: Grouping) -> KeyPath:
    """Return the path of an aggregate in an item of the answer.

    `{"count": 42}` counts rows, `{"count": {"id": 42}}` the values of a field. Beside fields the
    rows themselves are under `*`.
    """
    function = aggregate.function
    if aggregate.value:
        return function, aggregate.value.key
    for other in grouping.aggregates:
        if other.function == function and other.value:
            return function, "*"
    return (function,)
