"""Rules of fields in a plan: tested once for a row, and beside the tests of a filter."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import NamedTuple, TypeVar

from cms.query.language.operators import never
from cms.query.plan.read_plan import (
    AggregateValue,
    All,
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
    SearchMatch,
    SharedMask,
    TypedTest,
    Value,
    ValueOutput,
    inner_parts,
)
from cms.schema.model import Collection
from cms.schema.types.field_type import Trait

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


# Rules beside the tests of masked fields, where indexes serve both


Combine = Callable[[tuple[Predicate, ...]], Predicate]


class _MaskedTest(NamedTuple):
    """A test, and the rule of the rows in which it may hold; None is all rows."""

    rule: Predicate | None
    test: Predicate


class _RuleGroup(NamedTuple):
    """Tests that may hold in the rows of one rule."""

    rule: Predicate | None
    tests: list[Predicate]


def with_rules_beside(condition: Predicate) -> Predicate:
    """Return a condition on rows in which the rule of a masked field stands beside its tests.

    No index serves `CASE WHEN rule THEN price END > 5`, while `rule AND price > 5` holds in the
    same rows. Tests of fields with one rule share it.
    """
    match condition:
        case All(items):
            return All(_grouped(items, All))
        case AnyOf(items):
            return AnyOf(_grouped(items, AnyOf))
        case Exists(where=where):
            return replace(condition, where=with_rules_beside(where))
        case _ if _is_masked(condition):
            return All(_grouped((condition,), All))
        case _:
            return condition


def _grouped(items: Iterable[Predicate], combine: Combine) -> tuple[Predicate, ...]:
    """Return conditions with the tests of one rule as one, at the place of the first of them."""
    # By the identity of the rule, as predicates cannot be compared; what has no rule is alone.
    groups: dict[object, _RuleGroup] = {}
    for number, item in enumerate(items):
        masked = _masked_test(item)
        key: object = id(masked.rule)
        if masked.rule is None:
            key = ("without a rule", number)
        group = groups.setdefault(key, _RuleGroup(masked.rule, []))
        group.tests.append(masked.test)
    return tuple(_united(group, combine) for group in groups.values())


def _united(group: _RuleGroup, combine: Combine) -> Predicate:
    united = group.tests[0]
    if len(group.tests) > 1:
        united = combine(tuple(group.tests))
    if group.rule is None:
        return united
    return All((group.rule, united))


def _masked_test(condition: Predicate) -> _MaskedTest:
    if isinstance(condition, TypedTest | SearchMatch) and _is_masked(condition):
        value = replace(condition.value, when=None)
        return _MaskedTest(condition.value.when, replace(condition, value=value))
    return _MaskedTest(None, with_rules_beside(condition))


def _is_masked(condition: Predicate) -> bool:
    """Tell whether a test is of a masked field, and holds for no null.

    Where null fulfils the test, as `_null` does, it also holds in rows that hide the field.
    """
    match condition:
        case TypedTest(value, operator):
            return _has_mask(value) and operator.compare_null is never
        case SearchMatch(value):
            return _has_mask(value)
        case _:
            return False


def _has_mask(value: Value) -> bool:
    if value.when is None or value.function is not None or value.members is not None:
        return False
    # A test that looks into a value might fail for a hidden value, and the failure would reveal it.
    return not value.field.type.traits & {Trait.JSON, Trait.GEOMETRY}


def is_restricted(part: object) -> bool:
    """Tell whether rules hide values or rows that a part of a condition reads."""
    return _has_own_rule(part) or any(map(is_restricted, inner_parts(part)))


def _has_own_rule(part: object) -> bool:
    match part:
        case Value():
            return part.when is not None or part.members is not None
        case LinkStep():
            return part.when is not None or part.allowed is not None
        case CallerPath():
            return part.allowed is not None
        case _:
            return False
