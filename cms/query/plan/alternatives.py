"""Rearranges alternatives of a condition, so that PostgreSQL can begin with the related rows.

PostgreSQL joins a sub-select that stands alone, and can then begin at either side. If the
sub-select is part of an OR, PostgreSQL tests all rows one by one, however few it finds.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from cms.query.plan.read_plan import All, AnyOf, Exists, Predicate, TypedTest, Value
from cms.schema.types.field_type import Trait

MAX_JOINED_SUBSELECTS = 12
"""How many sub-selects PostgreSQL may join in one plan: planning takes ten seconds for ninety."""


def united_alternatives(items: Sequence[Predicate]) -> tuple[Predicate, ...]:
    """Return alternatives, in which tests of related items over the same step are merged into one.

    If one item fulfils the first filter, or another one the second, some item fulfils either of
    them. Look-ups of one row stay apart where other alternatives are left: each has its index.
    """
    alternatives = tuple(_flat(items))
    united = _united(alternatives)
    if len(united) == 1:
        return united
    lookups: list[Predicate] = []
    others: list[Predicate] = []
    for item in alternatives:
        if is_lookup(item):
            lookups.append(item)
        else:
            others.append(item)
    return (*lookups, *_united(others))


def _united(items: Sequence[Predicate]) -> tuple[Predicate, ...]:
    united: list[Predicate] = []
    for item in items:
        index = _index_of_step(united, item)
        if index is None:
            united.append(item)
            continue
        earlier = united[index]
        assert isinstance(earlier, Exists) and isinstance(item, Exists)
        united[index] = replace(earlier, where=AnyOf((earlier.where, item.where)))
    return tuple(united)


def _flat(items: Sequence[Predicate]) -> Iterator[Predicate]:
    for item in items:
        item = _unwrapped(item)
        if isinstance(item, AnyOf):
            yield from _flat(item.items)
        else:
            yield item


def _unwrapped(item: Predicate) -> Predicate:
    while isinstance(item, All | AnyOf) and len(item.items) == 1:
        (item,) = item.items
    return item


def _index_of_step(alternatives: list[Predicate], item: Predicate) -> int | None:
    """Return where related items over the step of `item` are tested already."""
    if not _is_plain(item):
        return None
    for index, earlier in enumerate(alternatives):
        if _is_plain(earlier) and _is_same_step(earlier, item):
            return index
    return None


def _is_plain(item: Predicate) -> bool:
    if not isinstance(item, Exists):
        return False
    return not (item.negated or item.per_row or item.keys_first)


def _is_same_step(first: Predicate, second: Predicate) -> bool:
    assert isinstance(first, Exists) and isinstance(second, Exists)
    one = first.step
    other = second.step
    # Rules by identity: predicates hold converters, which cannot be compared.
    same_rules = one.when is other.when and one.allowed is other.allowed
    return same_rules and one.link == other.link


def is_lookup(item: Predicate) -> bool:
    """Tell whether a condition tests one related row, which does not depend on its own row."""
    if not isinstance(item, Exists) or not _is_plain(item):
        return False
    return item.step.link.collection_field is None and _finds_one_row(item.where)


def _finds_one_row(condition: Predicate) -> bool:
    """Tell whether a condition names one row at most, by a unique column."""
    match condition:
        case All(items):
            return any(map(_finds_one_row, items))
        case AnyOf((item,)):
            return _finds_one_row(item)
        case TypedTest(value, operator):
            return operator.name == "_eq" and _is_unique(value)
        case _:
            return False


def _is_unique(value: Value) -> bool:
    column = value.field.column
    if column is None or not column.is_unique:
        return False
    # A function or a part of a unique value need not be unique.
    is_part = value.is_computed or Trait.JSON in value.field.type.traits
    return not is_part and value.field.type.value_sql == "{0}"


def count_subselects(condition: Predicate) -> int:
    """Return how many sub-selects PostgreSQL would join with the rows of the condition."""
    match condition:
        case All(items):
            return sum(map(count_subselects, items))
        case AnyOf(items):
            united = united_alternatives(items)
            # PostgreSQL joins no sub-select of an OR.
            if len(united) != 1:
                return 0
            return count_subselects(united[0])
        case Exists(step, where):
            count = 1 + count_subselects(where)
            for rule in (step.when, step.allowed):
                if rule is not None:
                    count += count_subselects(rule)
            return count
        case _:
            return 0
