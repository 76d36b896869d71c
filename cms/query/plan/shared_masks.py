"""Rules of fields that outputs share: each is tested once for a row, and not once for a field."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import fields, is_dataclass, replace
from typing import TypeVar

from cms.query.plan.resolved import (
    AggregateValue,
    AnyOf,
    CallerPath,
    Embed,
    EmbedChoice,
    Exists,
    Group,
    Grouping,
    LinkStep,
    MaskColumn,
    Order,
    Output,
    Predicate,
    ReadPlan,
    RevisionItem,
    SharedMask,
    Value,
    ValueOutput,
)
from cms.schema.model import Collection

MIN_COSTLY_USES = 2
"""How many fields share a rule with sub-selects."""
MIN_CHEAP_USES = 4
"""How many fields share a rule without sub-selects: for fewer, a column of its own costs more."""

ReplaceRule = Callable[[Predicate], Predicate]
GroupingPart = TypeVar("GroupingPart", Group, AggregateValue, Order | AggregateValue)


def share_masks(plan: ReadPlan) -> ReadPlan:
    """Return a plan whose outputs, groups and aggregates take shared rules from columns.

    Levels below are left as they are. Rules are compared by identity: predicates hold converters,
    which cannot be compared, and a view has one object for each rule.
    """
    columns: list[MaskColumn] = []
    masks_by_id: dict[int, Predicate] = {}
    for rule in _shared_rules(plan):
        column = MaskColumn(_column_name(plan.collection, len(columns)), rule)
        columns.append(column)
        masks_by_id[id(rule)] = SharedMask(column.name)
    if not columns:
        return plan

    def with_shared_masks(rule: Predicate) -> Predicate:
        parts = [masks_by_id.get(id(part), part) for part in _parts(rule)]
        if len(parts) == 1:
            return parts[0]
        return AnyOf(tuple(parts))

    return replace(_with_rules(plan, with_shared_masks), masks=tuple(columns))


def _shared_rules(plan: ReadPlan) -> Iterator[Predicate]:
    """Yield the rules that mask so many fields that each is worth a column."""
    rules: dict[int, Predicate] = {}
    uses: Counter[int] = Counter()

    def count_use(rule: Predicate) -> Predicate:
        for part in _parts(rule):
            rules[id(part)] = part
            uses[id(part)] += 1
        return rule

    # For the calls only: nothing is replaced.
    _with_rules(plan, count_use)
    for rule_id, rule in rules.items():
        if uses[rule_id] >= _min_uses(rule):
            yield rule


def _parts(rule: Predicate) -> tuple[Predicate, ...]:
    """Return the rules of the permissions that a rule is united of."""
    # One field has the mask A, another one A or B: both share A.
    if isinstance(rule, AnyOf) and rule.items:
        return rule.items
    return (rule,)


def _min_uses(rule: Predicate) -> int:
    return MIN_COSTLY_USES if has_subselect(rule) else MIN_CHEAP_USES


def has_subselect(part: object) -> bool:
    """Tell whether a part of a plan reads other rows than its own."""
    if isinstance(part, Exists | LinkStep | CallerPath | RevisionItem):
        return True
    if isinstance(part, tuple):
        return any(map(has_subselect, part))
    if isinstance(part, Value):
        return has_subselect((part.step, part.when, part.members))
    if not is_dataclass(part):
        return False
    inner_parts = [getattr(part, field.name) for field in fields(part)]
    return any(map(has_subselect, inner_parts))


def _column_name(collection: Collection, number: int) -> str:
    """Return a name that no column of the collection has."""
    name = f"_mask{number}"
    while name in collection.fields:
        name = f"_{name}"
    return name


# The places of rules at one level of a plan


def _with_rules(plan: ReadPlan, rule_of: ReplaceRule) -> ReadPlan:
    if plan.grouping:
        return replace(plan, grouping=_grouping(plan.grouping, rule_of))
    return replace(plan, outputs=tuple(_output(output, rule_of) for output in plan.outputs))


def _output(output: Output, rule_of: ReplaceRule) -> Output:
    match output:
        case ValueOutput(_, value):
            return replace(output, value=_value(value, rule_of))
        case Embed():
            return _embed(output, rule_of)
        case EmbedChoice(_, embeds):
            return replace(output, embeds=tuple(_embed(embed, rule_of) for embed in embeds))


def _embed(embed: Embed, rule_of: ReplaceRule) -> Embed:
    return replace(embed, step=_step(embed.step, rule_of))


def _step(step: LinkStep, rule_of: ReplaceRule) -> LinkStep:
    if step.when is None:
        return step
    return replace(step, when=rule_of(step.when))


def _value(value: Value, rule_of: ReplaceRule) -> Value:
    if value.step is not None:
        value = replace(value, step=_step(value.step, rule_of))
    if value.when is None:
        return value
    return replace(value, when=rule_of(value.when))


def _grouping(grouping: Grouping, rule_of: ReplaceRule) -> Grouping:
    # The same everywhere: PostgreSQL has to recognise a group in the outputs and in the order.
    return Grouping(
        tuple(_with_value_rules(group, rule_of) for group in grouping.groups),
        tuple(_with_value_rules(aggregate, rule_of) for aggregate in grouping.aggregates),
        tuple(_with_value_rules(term, rule_of) for term in grouping.order),
    )


def _with_value_rules(part: GroupingPart, rule_of: ReplaceRule) -> GroupingPart:
    # An aggregate without a value counts rows.
    if part.value is None:
        return part
    return replace(part, value=_value(part.value, rule_of))
