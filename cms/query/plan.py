"""From what a caller may ask to what the printer writes: names become columns, operands become parameters."""

from __future__ import annotations

from dataclasses import dataclass, replace

from cms.errors import Refused, invalid_query
from cms.query import functions
from cms.query.ast import KEY, Aggregate, And, At, Current, Filter, Name, Or, Pick, Query, Some, Term, Test, Window
from cms.query.bind import Bind
from cms.query.checks import check, hits
from cms.query.guarded import Guarded
from cms.query.resolved import (
    All,
    AnyOf,
    Either,
    Exists,
    Group,
    Grouping,
    Opened,
    Order,
    Output,
    Page,
    Predicate,
    ReadPlan,
    Shown,
    Subject,
    Summed,
    Value,
)
from cms.query.walk import Link, leads_on, link_of
from cms.schema.model import Catalogue, Collection
from cms.schema.types import Family

LONGEST_NAME = 63

_SUMMABLE = frozenset({Family.NUMBER})
_COMPARABLE = frozenset({Family.NUMBER, Family.MOMENT, Family.TEXT})
_GROUPABLE = _COMPARABLE | {Family.BOOLEAN, Family.UUID, Family.CSV}


def plan(guarded: Guarded, catalogue: Catalogue) -> ReadPlan:
    """Resolve a guarded query; raises `Refused` INVALID_QUERY where an operator or a function does not fit."""
    return _Planner(catalogue).read(guarded.query, guarded.collection)


@dataclass(frozen=True, slots=True)
class _Planner:
    catalogue: Catalogue

    def read(self, query: Query, collection: Collection) -> ReadPlan:
        grouping = self._grouping(query, collection)
        return ReadPlan(
            collection=collection,
            outputs=() if grouping else self._outputs(query.picks, collection),
            where=self._where(query, collection),
            order=() if grouping else self._order(query.sort, collection),
            page=_page(query.window),
            grouping=grouping,
            counts=query.counts,
            renamed=any(_is_renamed(pick) for pick in query.picks),
        )

    # What is shown

    def _outputs(self, picks: tuple[Pick, ...], collection: Collection) -> tuple[Output, ...]:
        if not picks:
            picks = (Pick(collection.primary_key, Name(collection.primary_key)),) if collection.primary_key else ()
        keys = dict.fromkeys(pick.key for pick in picks)
        alike = {key: [self._output(pick, collection) for pick in picks if pick.key == key] for key in keys}
        return tuple(_either(found) for found in alike.values())

    def _output(self, pick: Pick, collection: Collection) -> Output:
        if pick.nested is None:
            return Shown(pick.key, self.value(pick.name, collection), plain=pick.key == KEY)
        link = link_of(self.catalogue, collection, pick.name.field)
        assert link, "the guard opens relations only"
        found = self.read(pick.nested, self.catalogue.collections[link.target])
        if not link.to_many:  # one row needs neither order nor page
            found = replace(found, order=(), page=None)
        bare = not pick.nested.picks and not found.grouping
        return Opened(pick.key, link, found, bare=bare)

    def value(self, name: Name, collection: Collection) -> Value:
        """Return a field or a function of one as something that can be printed."""
        field = collection.fields[name.field]
        if name.function is None:
            return Value(field)
        link = link_of(self.catalogue, collection, name.field)
        if name.function == "count" and link and link.to_many:
            return Value(field, name.function, link)
        if functions.template(name.function, field.type_name) is None:
            fault = f'There is no function "{name.function}" for the type {field.type_name} of "{field.name}"'
            raise invalid_query(fault, collection=collection.name, field=field.name)
        return Value(field, name.function)

    # Which rows

    def _where(self, query: Query, collection: Collection) -> Predicate:
        said = self.predicate(query.filter, collection)
        if query.search is None:
            return said
        return All((said, hits(collection, query.search)))

    def predicate(self, said: Filter, collection: Collection) -> Predicate:
        """Resolve a filter whose names belong to the collection."""
        match said:
            case And(items):
                return All(tuple(self.predicate(item, collection) for item in items))
            case Or(items):
                return AnyOf(tuple(self.predicate(item, collection) for item in items))
            case At(name, inner):
                return self._at(name, inner, collection)
            case Some() | Test():
                raise AssertionError("the guard refuses an operator without a field")

    def _at(self, name: Name, inner: Filter, collection: Collection) -> Predicate:
        link = link_of(self.catalogue, collection, name.field)
        if link is None or name.function or not leads_on(inner):
            return self._own(inner, self.value(name, collection))
        target = self.catalogue.collections[link.target]
        if isinstance(inner, Some):
            return Exists(link, self.predicate(inner.inner, target), negated=inner.negated)
        return Exists(link, self.predicate(inner, target))

    def _own(self, said: Filter, value: Value) -> Predicate:
        match said:
            case And(items):
                return All(tuple(self._own(item, value) for item in items))
            case Or(items):
                return AnyOf(tuple(self._own(item, value) for item in items))
            case Test():
                return check(said, value, self._subject)
            case At() | Some():
                raise AssertionError("the guard refuses a path through a field that leads nowhere")

    def _subject(self, said: Current, label: str) -> Subject:
        """Resolve a path from the caller."""
        collection = self.catalogue.collections[said.collection]
        *steps, last = (Name(step) for step in said.path)
        links, end = self._steps(tuple(steps), collection)
        start = Bind(Current(said.name), str, label)
        return Subject(collection, start, links, self.value(last, end))

    def _steps(self, steps: tuple[Name, ...], collection: Collection) -> tuple[tuple[Link, ...], Collection]:
        links = []
        for step in steps:
            link = link_of(self.catalogue, collection, step.field)
            assert link, "the guard lets paths pass through relations only"
            links.append(link)
            collection = self.catalogue.collections[link.target]
        return tuple(links), collection

    # In which order

    def _order(self, sort: tuple[Term, ...], collection: Collection) -> tuple[Order, ...]:
        """Sort as said, else by the sort field; the primary key last, so that pages never overlap."""
        terms = sort or _usual_sort(collection)
        found = [self._term(term, collection) for term in terms]
        return (*found, *(Order(value) for value in _tie_breakers(collection)))

    def _term(self, term: Term, collection: Collection) -> Order:
        *steps, last = term.path
        links, end = self._steps(tuple(steps), collection)
        for link, step in zip(links, steps, strict=True):
            if link.to_many:
                raise invalid_query(f'"{step.field}" leads to many items and gives no order', parameter="sort")
        value = self.value(last, end)
        if value.family not in _GROUPABLE:
            raise _unfit(value, "cannot be sorted by", "sort")
        return Order(value, links, descending=term.descending)

    # Groups and aggregates

    def _grouping(self, query: Query, collection: Collection) -> Grouping | None:
        if not query.aggregates and not query.groups:
            return None
        groups = tuple(Group(name.key, self._grouped(name, collection)) for name in query.groups)
        summed = tuple(self._summed(aggregate, collection) for aggregate in query.aggregates)
        keys = [*(group.key for group in groups), *{aggregate.function for aggregate in query.aggregates}]
        for key in {key for key in keys if keys.count(key) > 1}:
            raise invalid_query(f'Two groups or aggregates would both be called "{key}"', parameter="groupBy")
        return Grouping(groups, summed, self._group_order(query, collection, groups))

    def _grouped(self, name: Name, collection: Collection) -> Value:
        value = self.value(name, collection)
        if value.family not in _GROUPABLE or value.link:
            raise _unfit(value, "cannot be grouped by", "groupBy")
        return value

    def _summed(self, aggregate: Aggregate, collection: Collection) -> Summed:
        if aggregate.field == "*":
            if not aggregate.function.startswith("count"):
                raise invalid_query(f"{aggregate.function} takes a field, not *", parameter="aggregate")
            return Summed(aggregate.function, None)
        value = self.value(Name(aggregate.field), collection)
        fitting = {"min": _COMPARABLE, "max": _COMPARABLE}.get(aggregate.function, _SUMMABLE)
        if aggregate.function == "countDistinct":
            fitting = _GROUPABLE
        if value.field.column is None or (value.family not in fitting and aggregate.function != "count"):
            raise _unfit(value, f"has no {aggregate.function}", "aggregate")
        return Summed(aggregate.function, value)

    def _group_order(
        self, query: Query, collection: Collection, groups: tuple[Group, ...]
    ) -> tuple[Order | Summed, ...]:
        found: list[Order | Summed] = []
        by_name = dict(zip(query.groups, groups, strict=True))
        for term in query.sort:
            if term.aggregate:
                found.append(replace(self._summed(term.aggregate, collection), descending=term.descending))
            elif len(term.path) == 1 and term.path[0] in by_name:
                found.append(Order(by_name[term.path[0]].value, descending=term.descending))
            else:
                raise invalid_query("Groups are sorted by what they are grouped by or an aggregate", parameter="sort")
        return (*found, *(Order(group.value) for group in groups))


def _is_renamed(pick: Pick) -> bool:
    return pick.key != pick.name.key or len(pick.key.encode()) > LONGEST_NAME


def _either(found: list[Output]) -> Output:
    """Several outputs of one key are the arms of a many-to-any field."""
    arms = tuple(item for item in found if isinstance(item, Opened))
    return Either(arms[0].key, arms) if len(found) > 1 else found[0]


def _usual_sort(collection: Collection) -> tuple[Term, ...]:
    """The sort field, where it has an order and is no secret."""
    field = collection.fields[collection.sort_field] if collection.sort_field else None
    if field is None or field.secret or field.type.family not in _GROUPABLE:
        return ()
    return (Term((Name(field.name),)),)


def _tie_breakers(collection: Collection) -> tuple[Value, ...]:
    """The primary key; where there is none, all columns that have an order."""
    if collection.primary_key:
        return (Value(collection.fields[collection.primary_key]),)
    return tuple(Value(field) for field in collection.columns if field.type.family in _GROUPABLE)


def _page(window: Window | None) -> Page | None:
    if window is None:
        return None
    limit = Bind(window.limit, _digits, "limit") if window.limit else None
    return Page(window.reach, limit, Bind(window.offset, _digits, "offset") if window.offset else None)


def _digits(value: object) -> object:
    return None if value is None else str(value)


def _unfit(value: Value, fault: str, parameter: str) -> Refused:
    field = value.field
    reason = f'The field "{field.name}" of type {field.type_name} {fault}'
    return invalid_query(reason, collection=field.collection, field=field.name, parameter=parameter)
