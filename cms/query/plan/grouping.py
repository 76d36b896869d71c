"""Groups and aggregates planned: which types have them, and in which order groups come."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

from cms.errors import Refused, invalid_query
from cms.query.language.aggregates import AGGREGATES, AggregateOutput
from cms.query.plan.conditions import value_of
from cms.query.plan.guarded import (
    AggregateTerm,
    GuardedAggregate,
    GuardedGroup,
    GuardedQuery,
    GuardedTerm,
)
from cms.query.plan.read_plan import (
    AggregateValue,
    Group,
    Grouping,
    JsonPath,
    JsonPaths,
    Order,
    ReadPlan,
    Value,
)
from cms.schema.types.field_type import FieldType, Trait


def grouping_of(query: GuardedQuery) -> Grouping | None:
    """Return the groups of a query, None for a query of items.

    Raises `Refused` INVALID_QUERY where a type cannot be grouped by or has no such aggregate.
    """
    if not query.aggregates and not query.groups:
        return None
    groups = tuple(map(_group, query.groups))
    aggregates = tuple(map(_aggregate, query.aggregates))
    _refuse_duplicate_keys(groups, aggregates)
    _refuse_duplicate_values(aggregates)
    return Grouping(groups, aggregates, _order(query, groups))


def _group(group: GuardedGroup) -> Group:
    value = value_of(group.value)
    if Trait.SORTING not in value.type.traits:
        raise unfit(value, "cannot be grouped by", "groupBy")
    return Group(group.key, value)


def _aggregate(aggregate: GuardedAggregate, *, descending: bool = False) -> AggregateValue:
    function = aggregate.function
    if aggregate.value is None:
        if AGGREGATES[function].output is not AggregateOutput.COUNT:
            raise invalid_query(f"{function} takes a field, not *", parameter="aggregate")
        return AggregateValue(function, None, descending)
    value = value_of(aggregate.value)
    # A to-many field has no column: its items are counted by the function `count`.
    if value.field.column is None or not _fits_aggregate(function, value.type):
        raise unfit(value, f"has no {function}", "aggregate")
    return AggregateValue(function, value, descending)


def _fits_aggregate(function: str, field_type: FieldType) -> bool:
    trait = AGGREGATES[function].trait
    return trait is None or trait in field_type.traits


def _refuse_duplicate_values(aggregates: Iterable[AggregateValue]) -> None:
    """Raise `Refused` INVALID_QUERY where two values of one function would share a key."""
    paths_by_key: dict[tuple[str, str], JsonPath | JsonPaths | None] = {}
    for aggregate in aggregates:
        value = aggregate.value
        if value is None:
            continue
        key = aggregate.function, value.key
        # `meta.a_b` and `meta.a.b` are different values with one key.
        if paths_by_key.setdefault(key, value.at) != value.at:
            raise invalid_query(
                f'Two values of {aggregate.function} would both be called "{value.key}"',
                parameter="aggregate",
            )


def _refuse_duplicate_keys(groups: Iterable[Group], aggregates: Iterable[AggregateValue]) -> None:
    """Raise `Refused` INVALID_QUERY where two groups or aggregates would share a key."""
    keys = [group.key for group in groups]
    # The aggregates of one function are together under its name. A field that is grouped by could
    # be called "count", which is also the key of the counts.
    keys += {aggregate.function for aggregate in aggregates}
    for key, count in Counter(keys).items():
        if count > 1:
            raise invalid_query(
                f'Two groups or aggregates would both be called "{key}"', parameter="groupBy"
            )


def _order(query: GuardedQuery, groups: tuple[Group, ...]) -> tuple[Order | AggregateValue, ...]:
    """Return the order of groups: that of the query, and of the groups themselves last."""
    order: list[Order | AggregateValue] = []
    groups_by_key = {group.key: group for group in groups}
    for term in query.sort:
        if isinstance(term, AggregateTerm):
            order.append(_aggregate(term.aggregate, descending=term.descending))
        elif isinstance(term, GuardedTerm) and term.key in groups_by_key:
            group = groups_by_key[term.key]
            order.append(Order(group.value, descending=term.descending))
        else:
            raise invalid_query(
                "Groups are sorted by what they are grouped by or an aggregate",
                parameter="sort",
            )
    # The groups themselves come last: every list has a total order.
    for group in groups:
        order.append(Order(group.value))
    return tuple(order)


def unfit(value: Value, problem: str, parameter: str) -> Refused:
    """Return the refusal of a value whose type does not fit a parameter."""
    field = value.field
    reason = f'The field "{field.name}" of type {field.type.name} {problem}'
    return invalid_query(reason, collection=field.collection, field=field.name, parameter=parameter)


# Where the values of an answer stand in its items


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
