"""A query resolved and checked name by name, with its order written out and rules beside names."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from cms.access.filter_guard import FilterGuard
from cms.access.json_names import holds_json, picked_paths
from cms.access.name_guard import NameGuard, back_reference_condition
from cms.access.pick_expansion import PickExpansion, PickPosition, position_of
from cms.access.query_rewriting import (
    refuse_duplicate_keys,
    refuse_key_of_highlights,
)
from cms.access.related_search import related_searches, search_values
from cms.access.views import View
from cms.errors import invalid_query
from cms.query.language.ast import RELEVANCE, Aggregate, Pick, Query, SortTerm, Window
from cms.query.language.limits import MAX_FIELDS, MAX_FIELDS_IN_ALL, Tally, too_many
from cms.query.plan.guarded import (
    AggregateTerm,
    AnyTerm,
    GuardedAggregate,
    GuardedColumn,
    GuardedEmbed,
    GuardedGroup,
    GuardedOutput,
    GuardedQuery,
    GuardedTerm,
    GuardedValue,
    RelevanceTerm,
)
from cms.query.plan.links import Link
from cms.query.plan.ordering import default_sort, tie_breakers
from cms.query.plan.read_plan import LinkStep, both
from cms.schema.model import Field
from cms.schema.names import FieldName, dotted_name


@dataclass(frozen=True, slots=True)
class _InnerQuery:
    """The query of related items; with `keys_only` they are listed by key."""

    query: Query
    keys_only: bool = False


@dataclass(slots=True)
class QueryGuard:
    """Guards one query for one caller: resolves its names, checks them and adds the rules.

    A to-many field that is not opened lists the keys of a `page` of its items. `tally` counts the
    fields of all levels, because `*.*.*` opens every relation of every relation.
    """

    names: NameGuard
    page: Window | None
    tally: Tally

    def query(
        self, query: Query, view: View, level: int, *, link: Link | None = None
    ) -> GuardedQuery:
        """Return the query with `*` and its order written out.

        `link` is the step that leads to its rows, None at the top.
        """
        self.names.check_depth(level, "fields")
        filters = FilterGuard(self.names)
        back_reference = back_reference_condition(link, view) if link else None
        # Arguments are evaluated in this order, and so the first problem here is the one refused.
        return GuardedQuery(
            collection=view.collection,
            outputs=self._outputs(query, view, level),
            filter=filters.filter(query.filter, view, level),
            sort=self._sort(query, view, level, link),
            groups=tuple(self._groups(query, view)),
            aggregates=tuple(self._aggregates(query, view)),
            base_filter=filters.filter(query.base_filter, view, level),
            rule=both(view.rule.predicate, back_reference),
            key_test=filters.test(query.key_test) if query.key_test else None,
            search=query.search,
            search_values=search_values(self.names, view) if query.search else (),
            search_items=related_searches(self.names, view, level) if query.search else (),
            window=query.window,
            counts=query.counts,
            row_outputs=query.row_outputs,
            cursor=query.cursor,
            highlights=query.highlights,
        )

    # What is shown

    def _outputs(self, query: Query, view: View, level: int) -> tuple[GuardedOutput, ...]:
        expansion = PickExpansion(self.names)
        picks = expansion.picks(query, view)
        self._count_fields(len(picks) + len(query.row_outputs))
        # Only after the stars are written out is it known which names share a key.
        refuse_duplicate_keys(picks.values())
        if query.highlights:
            refuse_key_of_highlights(picks.values())
        for pick in self._unshown_picks(expansion, query, picks, view):
            self._output(pick, view, level)  # for its refusal only
        return tuple(self._output(pick, view, level) for pick in picks.values())

    def _count_fields(self, count: int) -> None:
        # PostgreSQL allows no more columns in one level; all levels together are bounded for the
        # sake of its planner.
        if count > MAX_FIELDS:
            raise too_many("fields", maximum=MAX_FIELDS, parameter="fields")
        what = "fields of all levels together"
        self.tally.add(count, what, maximum=MAX_FIELDS_IN_ALL, parameter="fields")

    def _unshown_picks(
        self,
        expansion: PickExpansion,
        query: Query,
        picks: Mapping[PickPosition, Pick],
        view: View,
    ) -> Iterator[Pick]:
        """Yield names that the query uses but does not show, unless outputs check them."""
        for pick in query.checked_only:
            for targeted in expansion.per_target(pick, view, {}):
                output = picks.get(position_of(targeted))
                if output is None or (targeted.nested and not output.nested):
                    yield targeted

    def _output(self, pick: Pick, view: View, level: int) -> GuardedColumn | GuardedEmbed:
        name = view.resolve_name(pick.name)
        # Only an alias has a path for its field: elsewhere paths are picks inside of picks.
        if dotted_name(name, view.includes):
            return self._json_column(pick, self.names.readable_value(name, view))
        field = self.names.visible_field(view, name.field)
        if name.function:
            return self._function(pick, name, field, view)
        link = self.names.link(name, view)
        # A to-one relation that is not opened shows its column, the key of the related item.
        if pick.nested is None and not (link and link.to_many):
            return self._column(pick, name, field, view)
        if link is None and holds_json(field) and pick.nested and pick.nested.picks:
            value = self.names.readable_value(name, view)
            return GuardedColumn(pick.key, pick.name.key, picked_paths(value, pick.nested))
        if link is None:
            raise self.names.unknown_field(
                view, field.name, because="it leads to no other collection"
            )
        target = self.names.follow(name, link, view)
        # A to-many field that is not opened lists the keys of a page of its items.
        listed = self._listed_by_key(pick.nested or Query(picks=(), window=self.page), target)
        # The rules of the target are those of its query.
        return GuardedEmbed(
            key=pick.key,
            own_key=pick.name.key,
            field=field,
            step=LinkStep(link, self.names.link_condition(name, link, view)),
            query=self.query(listed.query, target, level + 1, link=link),
            keys_only=listed.keys_only,
        )

    def _column(self, pick: Pick, name: FieldName, field: Field, view: View) -> GuardedColumn:
        """Return the output of a column; `item:headings` is one if its target may be followed."""
        # An alias has no value of its own, and so nothing to show.
        if not field.has_value or not self._may_name_target(name, view):
            raise self.names.unknown_field(view, name.written)
        return GuardedColumn(pick.key, pick.name.key, self.names.value(field, view))

    def _json_column(self, pick: Pick, value: GuardedValue) -> GuardedColumn:
        if pick.nested:
            reason = f'"{pick.key}" is a value inside of JSON and cannot be opened'
            raise invalid_query(reason, parameter="fields")
        return GuardedColumn(pick.key, pick.name.key, value)

    def _may_name_target(self, name: FieldName, view: View) -> bool:
        if name.target is None:
            return True
        link = self.names.link(name, view)
        return link is not None and self.names.may_follow(link, view)

    def _function(self, pick: Pick, name: FieldName, field: Field, view: View) -> GuardedColumn:
        value = self.names.readable_value(name, view)
        if pick.nested:
            raise invalid_query(
                f'"{pick.key}" is a function and cannot be opened', parameter="fields"
            )
        if field.column is None and value.counted is None:
            raise self.names.unknown_field(view, field.name)
        return GuardedColumn(pick.key, pick.name.key, value)

    def _listed_by_key(self, nested: Query, target: View) -> _InnerQuery:
        """List items of which nothing is picked by key; without a key, by all their columns."""
        if nested.picks or nested.aggregates or nested.groups:
            return _InnerQuery(nested)
        if names := target.collection.key_names:
            for name in names:
                self.names.visible_field(target, name)
            picks = tuple(Pick(name, FieldName(name)) for name in names)
            return _InnerQuery(replace(nested, picks=picks), keys_only=True)
        columns: list[Pick] = []
        for field in target.collection.columns:
            if target.includes(field.name):
                columns.append(Pick(field.name, FieldName(field.name)))
        return _InnerQuery(replace(nested, picks=tuple(columns)))

    # Groups and aggregates

    def _groups(self, query: Query, view: View) -> Iterator[GuardedGroup]:
        for name in query.groups:
            value = self.names.readable_value(name, view)
            if value.field.parts:
                reason = f'"{name.written}" has several columns: group by them'
                columns = [part.name for part in value.field.parts]
                if all(map(view.includes, columns)):
                    reason = f"{reason}, {', '.join(columns)}"
                raise invalid_query(reason, parameter="groupBy")
            yield GuardedGroup(value.key or name.key, value)

    def _aggregates(self, query: Query, view: View) -> Iterator[GuardedAggregate]:
        for aggregate in query.aggregates:
            yield self._aggregate(aggregate, view)

    def _aggregate(self, aggregate: Aggregate, view: View) -> GuardedAggregate:
        if aggregate.name is None:
            return GuardedAggregate(aggregate.function, None)
        value = self.names.readable_value(aggregate.name, view)
        return GuardedAggregate(aggregate.function, value)

    # In which order

    def _sort(self, query: Query, view: View, level: int, link: Link | None) -> tuple[AnyTerm, ...]:
        """Sort by the query, else as relation or collection do, and by the primary key last.

        Without the key the order of equal rows could change between two pages.
        """
        terms: list[AnyTerm] = []
        for term in _different_terms(query.sort):
            if _means_relevance(term, view):
                terms.append(self._relevance(term, query))
            else:
                terms += self._sort_terms(term, view, level)
        if query.groups or query.aggregates:
            return tuple(terms)
        defaults = () if terms else default_sort(view.collection, link)
        fields = (*defaults, *tie_breakers(view.collection))
        return (*terms, *self._field_terms(fields, view))

    def _field_terms(self, fields: tuple[Field, ...], view: View) -> Iterator[GuardedTerm]:
        for field in fields:
            # The primary key orders every row, even rows in which the caller does not see it.
            if field.name in view.collection.key_names:
                yield GuardedTerm(GuardedValue(field))
            elif view.includes(field.name):
                yield GuardedTerm(self.names.value(field, view))

    def _sort_terms(
        self, term: SortTerm, view: View, level: int
    ) -> Iterator[GuardedTerm | AggregateTerm]:
        """Yield a term of a sort: one for each column, where a key has several."""
        if term.aggregate:
            yield AggregateTerm(self._aggregate(term.aggregate, view), term.descending)
            return
        # Sorting by a value reveals its order, so the caller must be allowed to read the value.
        steps, value = self.names.path(term.path, view, level)
        # Only a term without a path can mean a group, by the key of the group in the answer.
        group_key = None
        if not steps:
            group_key = value.key or term.path[0].key
        for part in value.field.key_fields:
            yield GuardedTerm(replace(value, field=part), steps, term.descending, group_key)

    def _relevance(self, term: SortTerm, query: Query) -> RelevanceTerm:
        if not query.search:
            reason = f"{RELEVANCE} is how well the words of a search fit, and search holds none"
            raise invalid_query(reason, parameter="sort")
        return RelevanceTerm(term.descending)


def _different_terms(terms: Iterable[SortTerm]) -> Iterable[SortTerm]:
    """Return the terms without those that repeat an earlier one, which order nothing any more."""
    different: dict[object, SortTerm] = {}
    for term in terms:
        # The smallest value of a list and its largest are different ones.
        direction = term.descending if len(term.path) > 1 else None
        different.setdefault((term.path, term.aggregate, direction), term)
    return different.values()


def _means_relevance(term: SortTerm, view: View) -> bool:
    # A column of another program may have the name.
    return term.path == (FieldName(RELEVANCE),) and not view.includes(RELEVANCE)
