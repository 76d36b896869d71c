"""Rules of fields that outputs share: each is tested once for a row, and not once for a field."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import TypeVar

from cms.query.plan.inner_parts import inner_parts
from cms.query.plan.read_plan import (
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
        parts: list[Predicate] = []
        for part in _parts(rule):
            parts.append(masks_by_id.get(id(part), part))
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
    if has_subselect(rule):
        return MIN_COSTLY_USES
    return MIN_CHEAP_USES


def has_subselect(part: object) -> bool:
    """Tell whether a part of a plan reads other rows than its own."""
    if isinstance(part, Exists | LinkStep | CallerPath | RevisionItem):
        return True
    if isinstance(part, Value):
        return has_subselect((part.step, part.when, part.members))
    return any(map(has_subselect, inner_parts(part)))


def _column_name(collection: Collection, number: int) -> str:
    """Return a name that no column of the collection has."""
    name = f"_mask{number}"
    while name in collection.fields:
        name = f"_{name}"
    return name


# Where rules stand at one level of a plan


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
        tuple(_grouping_parts(grouping.groups, rule_of)),
        tuple(_grouping_parts(grouping.aggregates, rule_of)),
        tuple(_grouping_parts(grouping.order, rule_of)),
    )


def _grouping_parts(parts: Iterable[GroupingPart], rule_of: ReplaceRule) -> Iterator[GroupingPart]:
    for part in parts:
        # An aggregate without a value counts rows.
        if part.value is None:
            yield part
        else:
            yield replace(part, value=_value(part.value, rule_of))
