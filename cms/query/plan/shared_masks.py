"""Rules of fields that outputs share: each is tested once for a row, and not once for a field."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from cms.query.plan.inner_parts import inner_parts
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

MIN_CHEAP_USES = 4
"""How many fields share a rule without sub-selects: for fewer, a column of its own costs more."""

ReplaceRule = Callable[[Predicate], Predicate]


def share_masks(plan: ReadPlan) -> ReadPlan:
    """Return a plan whose outputs, groups and aggregates take shared rules from columns.

    Levels below are left as they are. Rules are compared by identity: predicates hold converters,
    which cannot be compared, and a view has one object for each rule.
    """
    uses = _uses(plan)
    shared = [rule for rule, count in uses if count >= _min_uses(rule)]
    if not shared:
        return plan
    columns = tuple(
        MaskColumn(_column_name(plan.collection, number), rule)
        for number, rule in enumerate(shared)
    )
    by_rule = {id(column.rule): SharedMask(column.name) for column in columns}

    def shared_rule(rule: Predicate) -> Predicate:
        parts = tuple(by_rule.get(id(part), part) for part in _parts(rule))
        return parts[0] if len(parts) == 1 else AnyOf(parts)

    return replace(_with_rules(plan, shared_rule), masks=columns)


def _uses(plan: ReadPlan) -> list[tuple[Predicate, int]]:
    """Return the rules by which fields are masked, and how often each is printed."""
    counts: dict[int, tuple[Predicate, int]] = {}

    def count(rule: Predicate) -> Predicate:
        for part in _parts(rule):
            _, earlier = counts.get(id(part), (part, 0))
            counts[id(part)] = part, earlier + 1
        return rule

    _with_rules(plan, count)
    return list(counts.values())


def _parts(rule: Predicate) -> tuple[Predicate, ...]:
    """Return the rules of the permissions that a rule is united of."""
    # One field has the mask A, another one A or B: both share A.
    return rule.items if isinstance(rule, AnyOf) and rule.items else (rule,)


def _min_uses(rule: Predicate) -> int:
    return 2 if has_subselect(rule) else MIN_CHEAP_USES


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


# The places of rules at one level of a plan


def _with_rules(plan: ReadPlan, rule_of: ReplaceRule) -> ReadPlan:
    return replace(
        plan,
        outputs=tuple(_output(item, rule_of) for item in plan.outputs),
        grouping=_grouping(plan.grouping, rule_of) if plan.grouping else None,
    )


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
    return step if step.when is None else replace(step, when=rule_of(step.when))


def _value(value: Value, rule_of: ReplaceRule) -> Value:
    if value.step is not None:
        value = replace(value, step=_step(value.step, rule_of))
    return value if value.when is None else replace(value, when=rule_of(value.when))


def _grouping(grouping: Grouping, rule_of: ReplaceRule) -> Grouping:
    # The same everywhere: PostgreSQL has to recognise a group in the outputs and in the order.
    return Grouping(
        tuple(Group(group.key, _value(group.value, rule_of)) for group in grouping.groups),
        tuple(_aggregate(item, rule_of) for item in grouping.aggregates),
        tuple(_term(term, rule_of) for term in grouping.order),
    )


def _aggregate(item: AggregateValue, rule_of: ReplaceRule) -> AggregateValue:
    return item if item.value is None else replace(item, value=_value(item.value, rule_of))


def _term(term: Order | AggregateValue, rule_of: ReplaceRule) -> Order | AggregateValue:
    if isinstance(term, AggregateValue):
        return _aggregate(term, rule_of)
    return replace(term, value=_value(term.value, rule_of))
