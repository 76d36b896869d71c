"""A query checked name by name, with `*` and the order written out and rules beside the names."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import reduce

from cms.access.filter_guard import FilterGuard
from cms.access.name_guard import NameGuard
from cms.access.query_rewriting import (
    back_reference_mask,
    is_internal,
    merged_picks,
    refuse_duplicate_keys,
    search_fields,
    with_star_fields,
)
from cms.access.views import View
from cms.errors import invalid_query
from cms.query.language.ast import (
    STAR,
    Aggregate,
    FieldName,
    Pick,
    Query,
    SortTerm,
    Window,
    both,
)
from cms.query.language.limits import MAX_FIELDS, MAX_FIELDS_IN_ALL
from cms.query.plan.links import Link, link_of, target_collections
from cms.query.plan.ordering import default_sort, tie_breakers
from cms.schema.model import Field

PicksByKey = dict[tuple[str, str], Pick]
"""Picks by key and field: the targets of a many-to-any field share the key."""


@dataclass(slots=True)
class QueryGuard:
    """Walks one query with the eyes of one caller.

    Lists of keys are cut to `page`. Fields are counted over all levels, because `*.*.*` opens every
    relation of every relation.
    """

    names: NameGuard
    page: Window | None = None
    field_count: int = 0

    def query(self, query: Query, view: View, level: int, *, link: Link | None = None) -> Query:
        """Return the query with `*` and its order written out.

        `link` is the step that leads to its rows, None at the top.
        """
        self.names.check_depth(level)
        filters = FilterGuard(self.names)
        row_rule = both(view.rule, back_reference_mask(link, view))
        searched = (FieldName(field.name) for field in search_fields(view))
        return replace(
            query,
            picks=self._picks(query, view, level),
            deep=(),
            checked_only=(),
            filter=filters.filter(query.filter, view, level),
            sort=self._sort(query, view, level, link),
            groups=tuple(self.names.readable_name(group, view) for group in query.groups),
            aggregates=tuple(self._aggregate(aggregate, view) for aggregate in query.aggregates),
            allowed=both(filters.filter(query.base_filter, view, level), row_rule),
            search_fields=tuple(self.names.with_mask(name, view) for name in searched),
        )

    # What is shown

    def _picks(self, query: Query, view: View, level: int) -> tuple[Pick, ...]:
        picks = self._merged_picks(query, view)
        self._count_fields(len(picks))
        # Only after the stars are written out is it known which names share a key.
        refuse_duplicate_keys(picks.values())
        self._check_unshown(query, picks, view, level)
        return tuple(
            pick if is_internal(pick, view) else self._pick(pick, view, level)
            for pick in picks.values()
        )

    def _merged_picks(self, query: Query, view: View) -> PicksByKey:
        """Return the picks with `*` written out; picks of the same field are merged."""
        picks: PicksByKey = {}
        deep = dict(query.deep)
        for pick in self._expand_stars(query, view):
            for scoped in self._per_target(pick, view, deep):
                position = scoped.key, scoped.name.field
                earlier = picks.get(position)
                picks[position] = merged_picks(scoped, earlier) if earlier else scoped
        return picks

    def _count_fields(self, count: int) -> None:
        self.field_count += count
        if count > MAX_FIELDS:
            raise invalid_query(f"It asks for more than {MAX_FIELDS} fields", parameter="fields")
        if self.field_count > MAX_FIELDS_IN_ALL:
            raise invalid_query(
                f"It opens more than {MAX_FIELDS_IN_ALL} fields in all", parameter="fields"
            )

    def _check_unshown(self, query: Query, picks: PicksByKey, view: View, level: int) -> None:
        """Check what the query names without showing it, unless the same is checked as shown."""
        for pick in query.checked_only:
            for scoped in self._per_target(pick, view, {}):
                shown = picks.get((scoped.key, scoped.name.field))
                if shown is None or (scoped.nested and not shown.nested):
                    self._pick(scoped, view, level)

    def _expand_stars(self, query: Query, view: View) -> list[Pick]:
        """Write `*` out: columns and keys of to-many fields; `*.*` opens all relations.

        Fields that are named beside `*` are shown as well, and `deep` holds for fields that only
        `*` names, too.
        """
        stars = [pick for pick in query.picks if pick.key == STAR.key]
        named = [pick for pick in query.picks if pick.key != STAR.key]
        if not stars:
            return named
        star = reduce(merged_picks, stars)
        picks = self._star_fields(star, view, dict(query.deep))
        for pick in named:
            if self._may_see_and_follow(pick.name.base_field, view):
                pick = with_star_fields(pick, star)
            picks.append(pick)
        return picks

    def _star_fields(self, star: Pick, view: View, deep: Mapping[str, Query]) -> list[Pick]:
        picks = []
        for name, field in view.collection.fields.items():
            if self._star_opens(name, star, view):
                picks.append(with_star_fields(Pick(name, FieldName(name), deep.get(name)), star))
            elif field.column and view.sees(name):
                picks.append(Pick(name, FieldName(name)))
        return picks

    def _star_opens(self, name: str, star: Pick, view: View) -> bool:
        """Tell whether `*` shows what a relational field leads to.

        Of a to-many field the keys must be there to list.
        """
        if not self._may_see_and_follow(name, view):
            return False
        link = link_of(self.names.catalogue, view.collection, name)
        if link is None or not link.to_many or star.nested is not None:
            return True
        return self._can_list(link)

    def _may_see_and_follow(self, name: str, view: View) -> bool:
        return view.sees(name) and self.names.may_follow_field(name, view)

    def _can_list(self, link: Link) -> bool:
        """Tell whether the items of a link can be listed by key, or have no key at all."""
        target = self.names.lookup(link.target)
        if target is None:
            return False
        key = target.collection.primary_key
        return key is None or target.sees(key)

    def _per_target(self, pick: Pick, view: View, deep: Mapping[str, Query]) -> list[Pick]:
        """Return a pick for each target of a many-to-any field that is opened without naming one.

        A target takes the picks that fit its fields; `deep` may hold a query for one target.
        """
        field_name = pick.name.field
        if ":" in field_name:
            return [pick]
        targets = target_collections(self.names.catalogue, view.collection, field_name)
        deep_queries = {}
        for target in targets:
            if query := deep.get(f"{pick.key}:{target}"):
                deep_queries[target] = query
        nested = pick.nested
        if nested is None and deep_queries:
            nested = Query(picks=())
        if nested is None or not targets:
            return [pick]
        # A hidden field is refused as such, before its targets are looked at.
        self.names.visible_field(view, pick.name.base_field)
        picks = []
        for target in self.names.targets(field_name, view):
            fitting = self._fitting_picks(nested, target)
            if fitting or not nested.picks:
                name = replace(pick.name, field=f"{field_name}:{target}")
                query = replace(deep_queries.get(target, nested), picks=fitting)
                picks.append(replace(pick, name=name, nested=query))
        if not picks:
            missing = nested.picks[0] if nested.picks else pick
            raise self.names.unknown_field(view, missing.name.field)
        return picks

    def _fitting_picks(self, query: Query, target: str) -> tuple[Pick, ...]:
        view = self.names.view(target)
        return tuple(
            pick for pick in query.picks if pick.key == STAR.key or view.sees(pick.name.base_field)
        )

    def _pick(self, pick: Pick, view: View, level: int) -> Pick:
        field = self.names.visible_field(view, view.own_name(pick.name))
        if pick.name.function:
            return self._function(pick, field, view)
        link = link_of(self.names.catalogue, view.collection, pick.name.field)
        if pick.nested is None and not (link and link.to_many):
            return self._column(pick, field, link, view)
        if link is None:
            raise self.names.unknown_field(
                view, field.name, because="it leads to no other collection"
            )
        name, target = self.names.follow(pick.name, link, view)
        nested = self._listed_by_key(pick.nested or Query(picks=(), window=self.page), target)
        return replace(pick, name=name, nested=self.query(nested, target, level + 1, link=link))

    def _column(self, pick: Pick, field: Field, link: Link | None, view: View) -> Pick:
        """Return the pick of a column; `item:headings` is one if its target may be followed."""
        names_target = pick.name.field != field.name
        leads_on = link is not None and self.names.may_follow(link, view)
        if field.column is None or (names_target and not leads_on):
            raise self.names.unknown_field(view, pick.name.field)
        name = replace(pick.name, field=field.name)
        return replace(pick, name=self.names.with_mask(name, view))

    def _function(self, pick: Pick, field: Field, view: View) -> Pick:
        name = self.names.readable_name(pick.name, view)
        if pick.nested:
            raise invalid_query(
                f'"{pick.key}" is a function and cannot be opened', parameter="fields"
            )
        if field.column is None and name.target_rule is None:
            raise self.names.unknown_field(view, field.name)
        return replace(pick, name=name)

    def _listed_by_key(self, nested: Query, target: View) -> Query:
        """List items of which nothing is picked by key; without a key, by all their columns."""
        if nested.picks or nested.aggregates or nested.groups:
            return nested
        if key := target.collection.primary_key:
            self.names.visible_field(target, key)
            return replace(nested, picks=(Pick(key, FieldName(key)),), keys_only=True)
        columns = [field.name for field in target.collection.columns if target.sees(field.name)]
        return replace(nested, picks=tuple(Pick(name, FieldName(name)) for name in columns))

    def _aggregate(self, aggregate: Aggregate, view: View) -> Aggregate:
        if aggregate.name.field == "*":
            return aggregate
        return replace(aggregate, name=self.names.readable_name(aggregate.name, view))

    # In which order

    def _sort(
        self, query: Query, view: View, level: int, link: Link | None
    ) -> tuple[SortTerm, ...]:
        """Sort by the query, else as relation or collection do, and by the primary key last.

        Without the key the order of equal rows could change between two pages.
        """
        terms = tuple(self._sort_term(term, view, level) for term in query.sort)
        if query.groups or query.aggregates:
            return terms
        defaults = () if terms else default_sort(view.collection, link)
        names = [
            name
            for name in (*defaults, *tie_breakers(view.collection))
            if name.field == view.collection.primary_key or view.sees(name.field)
        ]
        return (*terms, *(SortTerm((self._sorted_name(name, view),)) for name in names))

    def _sorted_name(self, name: FieldName, view: View) -> FieldName:
        """The primary key orders every row, even rows in which the caller does not see it."""
        if name.field == view.collection.primary_key:
            return name
        return self.names.with_mask(name, view)

    def _sort_term(self, term: SortTerm, view: View, level: int) -> SortTerm:
        if term.aggregate:
            return replace(term, aggregate=self._aggregate(term.aggregate, view))
        self.names.check_depth(level + len(term.path) - 1)
        return replace(term, path=self.names.path(term.path, view))
