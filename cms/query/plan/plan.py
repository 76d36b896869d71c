"""The planner: names become columns, operands become placeholders."""

from __future__ import annotations

from dataclasses import dataclass, replace

from cms.errors import Refused, invalid_query
from cms.query.language.ast import (
    EVERYTHING,
    INTERNAL_KEY,
    INTERNAL_VERSION,
    AboutItem,
    Aggregate,
    And,
    AtField,
    CallerValue,
    Constant,
    FieldName,
    Filter,
    OperatorTest,
    Or,
    Pick,
    Query,
    Some,
    SortTerm,
    Window,
)
from cms.query.plan.bindings import Placeholder
from cms.query.plan.checks import search_matches, typed_test
from cms.query.plan.guarded import Guarded
from cms.query.plan.links import has_item_test, history_item_link, link_of
from cms.query.plan.resolved import (
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
    Order,
    Output,
    Page,
    Predicate,
    ReadPlan,
    Value,
    ValueOutput,
)
from cms.query.plan.revision_items import on_revision_item
from cms.schema.model import Catalogue, Collection, Field
from cms.schema.types.field_type import FieldType, Trait
from cms.schema.types.texts import UNKNOWN

LONGEST_NAME = 63
"""Bytes of a column's name; PostgreSQL cuts off what is longer."""

_TRAITS_OF_AGGREGATES = {
    "countDistinct": Trait.SORTING,
    "min": Trait.ORDER,
    "max": Trait.ORDER,
}
"""What some aggregates need of a type; sums and averages need numbers."""


def plan(guarded: Guarded, catalogue: Catalogue) -> ReadPlan:
    """Resolve a guarded query.

    Raises `Refused` INVALID_QUERY where an operator or a function does not fit.
    """
    return _Planner(catalogue).read(guarded.query, guarded.collection)


def resolve_rule(rule: Filter, collection: Collection, catalogue: Catalogue) -> Predicate:
    """Resolve a rule of a permission, all of whose names exist; raises as `plan` does."""
    return _Planner(catalogue).predicate(rule, collection)


@dataclass(frozen=True, slots=True)
class _Planner:
    catalogue: Catalogue

    def read(self, query: Query, collection: Collection) -> ReadPlan:
        grouping = self._grouping(query, collection)
        return ReadPlan(
            collection=collection,
            outputs=() if grouping else self._outputs(query.picks, collection),
            allowed=self.predicate(query.allowed, collection),
            where=self._where(query, collection),
            order=() if grouping else tuple(self._term(term, collection) for term in query.sort),
            page=_page(query.window),
            grouping=grouping,
            counts=query.counts,
            renamed=any(_is_renamed(pick) for pick in query.picks),
        )

    # What is shown

    def _outputs(self, picks: tuple[Pick, ...], collection: Collection) -> tuple[Output, ...]:
        keys = dict.fromkeys(pick.key for pick in picks)
        # The targets of a many-to-any field share one key, and become one output.
        alike = {
            key: [self._output(pick, collection) for pick in picks if pick.key == key]
            for key in keys
        }
        fields = {
            pick.key: collection.fields.get(
                pick.name.field, collection.fields.get(pick.name.base_field)
            )
            for pick in picks
        }
        return tuple(_merge_outputs(outputs, fields[key]) for key, outputs in alike.items())

    def _output(self, pick: Pick, collection: Collection) -> Output:
        if pick.key == INTERNAL_VERSION:
            return ValueOutput(INTERNAL_VERSION, Value(_row_version(collection)), plain=True)
        if pick.nested is None:
            return ValueOutput(
                pick.key, self.value(pick.name, collection), plain=pick.key == INTERNAL_KEY
            )
        link = link_of(self.catalogue, collection, pick.name.field)
        assert link, "the guard opens relations only"
        nested = self.read(pick.nested, self.catalogue.collections[link.target])
        # One row needs neither order nor page.
        if not link.to_many:
            nested = replace(nested, order=(), page=None)
        return Embed(
            pick.key,
            LinkStep(link, self._when(pick.name, collection)),
            nested,
            keys_only=pick.nested.keys_only,
        )

    def value(self, name: FieldName, collection: Collection) -> Value:
        """Return a field or a function of one as something that can be printed."""
        field = collection.fields[name.field]
        when = self._when(name, collection)
        members = self._members(name, collection)
        if name.function is None:
            return Value(field, when=when, members=members)
        link = link_of(self.catalogue, collection, name.field)
        if name.function == "count" and link and link.to_many:
            return Value(field, name.function, self._step(name, collection))
        if name.function not in field.type.functions:
            type_name = field.type.name
            reason = (
                f'There is no function "{name.function}" for the type {type_name} of "{field.name}"'
            )
            raise invalid_query(reason, collection=collection.name, field=field.name)
        return Value(field, name.function, when=when, members=members)

    def _members(
        self, name: FieldName, collection: Collection
    ) -> tuple[tuple[Predicate, tuple[str, ...]], ...] | None:
        if name.members is None:
            return None
        return tuple((self.predicate(part.when, collection), part.names) for part in name.members)

    def _when(self, name: FieldName, collection: Collection) -> Predicate | None:
        """Return the condition under which a field may be read, None when there is none."""
        return None if name.when is None else self.predicate(name.when, collection)

    def _step(self, name: FieldName, collection: Collection) -> LinkStep:
        link = link_of(self.catalogue, collection, name.field)
        assert link, "the guard lets paths pass through relations only"
        target = self.catalogue.collections[link.target]
        target_rule = name.target_rule or EVERYTHING
        allowed = None if target_rule == EVERYTHING else self.predicate(target_rule, target)
        return LinkStep(link, self._when(name, collection), allowed)

    # Which rows

    def _where(self, query: Query, collection: Collection) -> Predicate:
        conditions = [self.predicate(query.filter, collection)]
        if query.key_test:
            conditions.append(
                self._on_field(
                    query.key_test, Value(collection.fields[str(collection.primary_key)])
                )
            )
        if query.search:
            conditions.append(
                search_matches(
                    [self.value(name, collection) for name in query.search_fields], query.search
                )
            )
        return conditions[0] if len(conditions) == 1 else All(tuple(conditions))

    def predicate(self, filter: Filter, collection: Collection) -> Predicate:
        """Resolve a filter whose names belong to the collection."""
        match filter:
            case And(items):
                return All(tuple(self.predicate(item, collection) for item in items))
            case Or(items):
                return AnyOf(tuple(self.predicate(item, collection) for item in items))
            case AtField(name, inner):
                return self._at_field(name, inner, collection)
            case AboutItem(name, rule):
                return self._about_item(name, rule, collection)
            case Some() | OperatorTest():
                raise AssertionError("the guard refuses an operator without a field")

    def _about_item(self, name: str, rule: Filter, history: Collection) -> Predicate:
        """Resolve the condition that a row of the history is about an item that fulfils the rule.

        A revision also holds the item as it was; the rule is tried on that, too.
        """
        target = self.catalogue.collections[name]
        link = history_item_link(self.catalogue, history, name)
        is_collection = OperatorTest("_eq", (Constant(name),))
        conditions = [self._at_field(FieldName("collection"), is_collection, history)]
        # Rows up to this one are about items that had this name and key before.
        if last := target.former_history.get(history.name):
            is_later = OperatorTest("_gt", (Constant(last),))
            conditions = [All((*conditions, self._at_field(FieldName("id"), is_later, history)))]
        if rule == EVERYTHING:
            return conditions[0]
        assert link, "the guard names collections with a key only"
        where = self.predicate(rule, target)
        conditions.append(Exists(LinkStep(link), where, per_row=True))
        if "data" in history.fields:
            conditions.append(on_revision_item(where, target))
        return All(tuple(conditions))

    def _at_field(self, name: FieldName, inner: Filter, collection: Collection) -> Predicate:
        link = link_of(self.catalogue, collection, name.field)
        if link is None or name.function or not has_item_test(inner):
            return self._on_field(inner, self.value(name, collection))
        target = self.catalogue.collections[link.target]
        step = self._step(name, collection)
        if isinstance(inner, Some):
            return Exists(step, self.predicate(inner.inner, target), negated=inner.negated)
        return Exists(step, self.predicate(inner, target))

    def _on_field(self, filter: Filter, value: Value) -> Predicate:
        match filter:
            case And(items):
                return All(tuple(self._on_field(item, value) for item in items))
            case Or(items):
                return AnyOf(tuple(self._on_field(item, value) for item in items))
            case OperatorTest():
                return typed_test(filter, value, self._caller_path)
            case AtField() | Some() | AboutItem():
                raise AssertionError("the guard refuses a path through a field that leads nowhere")

    def _caller_path(self, caller_value: CallerValue, label: str) -> CallerPath:
        """Resolve a path from the caller."""
        collection = self.catalogue.collections[caller_value.collection]
        allowed = None
        if caller_value.allowed is not None and caller_value.allowed != EVERYTHING:
            allowed = self.predicate(caller_value.allowed, collection)
        *names, last = caller_value.path
        steps, end = self._steps(tuple(names), collection)
        start = Placeholder(CallerValue(caller_value.name), str, label)
        return CallerPath(collection, start, allowed, steps, self.value(last, end))

    def _steps(
        self, names: tuple[FieldName, ...], collection: Collection
    ) -> tuple[tuple[LinkStep, ...], Collection]:
        steps = []
        for name in names:
            steps.append(self._step(name, collection))
            collection = self.catalogue.collections[steps[-1].link.target]
        return tuple(steps), collection

    # In which order

    def _term(self, term: SortTerm, collection: Collection) -> Order:
        *names, last = term.path
        steps, end = self._steps(tuple(names), collection)
        for step, name in zip(steps, names, strict=True):
            if step.link.to_many:
                raise invalid_query(
                    f'"{name.field}" leads to many items and gives no order', parameter="sort"
                )
        value = self.value(last, end)
        if Trait.SORTING not in value.type.traits:
            raise _unfit(value, "cannot be sorted by", "sort")
        return Order(value, steps, descending=term.descending)

    # Groups and aggregates

    def _grouping(self, query: Query, collection: Collection) -> Grouping | None:
        if not query.aggregates and not query.groups:
            return None
        groups = tuple(
            Group(name.key, self._group_value(name, collection)) for name in query.groups
        )
        aggregates = tuple(
            self._aggregate_value(aggregate, collection) for aggregate in query.aggregates
        )
        keys = [
            *(group.key for group in groups),
            *{aggregate.function for aggregate in query.aggregates},
        ]
        for key in {key for key in keys if keys.count(key) > 1}:
            raise invalid_query(
                f'Two groups or aggregates would both be called "{key}"', parameter="groupBy"
            )
        return Grouping(groups, aggregates, self._group_order(query, collection, groups))

    def _group_value(self, name: FieldName, collection: Collection) -> Value:
        value = self.value(name, collection)
        if Trait.SORTING not in value.type.traits:
            raise _unfit(value, "cannot be grouped by", "groupBy")
        return value

    def _aggregate_value(self, aggregate: Aggregate, collection: Collection) -> AggregateValue:
        if aggregate.name.field == "*":
            if not aggregate.function.startswith("count"):
                raise invalid_query(
                    f"{aggregate.function} takes a field, not *", parameter="aggregate"
                )
            return AggregateValue(aggregate.function, None)
        value = self.value(aggregate.name, collection)
        if value.field.column is None or not _fits_aggregate(aggregate.function, value.type):
            raise _unfit(value, f"has no {aggregate.function}", "aggregate")
        return AggregateValue(aggregate.function, value)

    def _group_order(
        self, query: Query, collection: Collection, groups: tuple[Group, ...]
    ) -> tuple[Order | AggregateValue, ...]:
        order: list[Order | AggregateValue] = []
        by_key = {group.key: group for group in groups}
        for term in query.sort:
            if term.aggregate:
                value = self._aggregate_value(term.aggregate, collection)
                order.append(replace(value, descending=term.descending))
            elif len(term.path) == 1 and term.path[0].key in by_key:
                order.append(Order(by_key[term.path[0].key].value, descending=term.descending))
            else:
                raise invalid_query(
                    "Groups are sorted by what they are grouped by or an aggregate",
                    parameter="sort",
                )
        return (*order, *(Order(group.value) for group in groups))


def _fits_aggregate(function: str, field_type: FieldType) -> bool:
    if function == "count":
        return True
    trait = _TRAITS_OF_AGGREGATES.get(function, Trait.ARITHMETIC)
    return trait in field_type.traits


def _row_version(collection: Collection) -> Field:
    """Return PostgreSQL's own column `xmin`: the transaction that wrote the row."""
    return Field(collection.name, "xmin", UNKNOWN)


def _is_renamed(pick: Pick) -> bool:
    return pick.key != pick.name.key or len(pick.key.encode()) > LONGEST_NAME


def _merge_outputs(outputs: list[Output], field: Field | None) -> Output:
    """Return one output for the outputs of one key: the targets of a many-to-any field.

    If no target is opened, the output is the column itself, in the rows whose item is seen.
    """
    embeds = tuple(output for output in outputs if isinstance(output, Embed))
    if not embeds:
        return outputs[0]
    key = embeds[0].key
    if field and all(embed.keys_only and embed.step.link.collection_field for embed in embeds):
        # The target still decides what is seen: a row whose item is hidden shows null.
        seen = [Exists(embed.step, All((embed.plan.allowed, embed.plan.where))) for embed in embeds]
        return ValueOutput(key, Value(field, when=AnyOf(tuple(seen))))
    return EmbedChoice(key, embeds) if len(outputs) > 1 else outputs[0]


def _page(window: Window | None) -> Page | None:
    if window is None:
        return None
    limit = Placeholder(window.limit, _digits, "limit") if window.limit else None
    offset = Placeholder(window.offset, _digits, "offset") if window.offset else None
    return Page(window.row_limit, limit, offset)


def _digits(value: object) -> object:
    return None if value is None else str(value)


def _unfit(value: Value, problem: str, parameter: str) -> Refused:
    field = value.field
    reason = f'The field "{field.name}" of type {field.type.name} {problem}'
    return invalid_query(reason, collection=field.collection, field=field.name, parameter=parameter)
