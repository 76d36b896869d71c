"""Every name of a query checked as if it were read, and the rules put beside it (decisions, section 11)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import reduce

from cms.access.query_rewriting import (
    distributed_over_items,
    far_mask,
    is_internal,
    merged_picks,
    quantifiers_alone,
    refuse_duplicate_keys,
    searched_fields,
    with_star_fields,
)
from cms.access.views import View
from cms.errors import Refused, forbidden, invalid_query, not_found
from cms.query.language.ast import (
    STAR,
    AboutItem,
    Aggregate,
    And,
    AtField,
    CallerValue,
    FieldName,
    Filter,
    Operand,
    OperatorTest,
    Or,
    Pick,
    Query,
    Some,
    SortTerm,
    Window,
    both,
)
from cms.query.language.limits import MAX_FIELDS, MAX_FIELDS_IN_ALL
from cms.query.language.operators import SECRET_OPERATORS
from cms.query.plan.links import (
    Link,
    has_item_test,
    has_key_test,
    has_quantifier,
    link_of,
    target_collections,
)
from cms.query.plan.plan import default_sort, tie_breakers
from cms.schema.model import Catalogue, Field

ViewLookup = Callable[[str], View | None]
"""What the caller sees of a collection; None is nothing at all."""


@dataclass(slots=True)
class QueryGuard:
    """Walks one query under one caller's sight; counts fields, for `*.*.*` opens every relation of every relation.

    To a caller that is not `explains` the reason, whatever is hidden or missing is the same FORBIDDEN.
    """

    catalogue: Catalogue
    lookup: ViewLookup
    explains: bool
    depth: int
    page: Window | None = None
    field_count: int = 0
    touched_collections: set[str] = field(default_factory=set)

    def view(self, collection: str) -> View:
        """Return what the caller sees of a collection; raises `Refused` FORBIDDEN or NOT_FOUND for nothing."""
        found = self.lookup(collection)
        if found is None:
            raise not_found("collection") if self.explains else forbidden()
        self.touched_collections.update((collection, *found.other_collections))
        return found

    def query(self, query: Query, view: View, level: int, *, link: Link | None = None) -> Query:
        """Return the query with `*` and the order written out; `link` is the step that leads to its rows."""
        self._check_depth(level)
        return replace(
            query,
            picks=self._picks(query, view, level),
            deep=(),
            checked_only=(),
            filter=self.filter(query.filter, view, level),
            sort=self._sort(query, view, level, link),
            groups=tuple(self._readable_name(group, view) for group in query.groups),
            aggregates=tuple(self._aggregate(aggregate, view) for aggregate in query.aggregates),
            allowed=both(
                self.filter(query.base_filter, view, level), both(view.rule, far_mask(link, view))
            ),
            search_fields=tuple(
                self._with_mask(FieldName(found.name), view) for found in searched_fields(view)
            ),
        )

    # What is shown

    def _picks(self, query: Query, view: View, level: int) -> tuple[Pick, ...]:
        asked: dict[tuple[str, str], Pick] = {}
        for pick in self._expand_stars(query, view):
            for scoped in self._per_target(pick, view, dict(query.deep)):
                before = asked.get((scoped.key, scoped.name.field))
                asked[scoped.key, scoped.name.field] = (
                    merged_picks(scoped, before) if before else scoped
                )
        self.field_count += len(asked)
        if len(asked) > MAX_FIELDS:
            raise invalid_query(f"It asks for more than {MAX_FIELDS} fields", parameter="fields")
        if self.field_count > MAX_FIELDS_IN_ALL:
            raise invalid_query(
                f"It opens more than {MAX_FIELDS_IN_ALL} fields in all", parameter="fields"
            )
        refuse_duplicate_keys(asked.values())
        for pick in query.checked_only:
            for scoped in self._per_target(pick, view, {}):
                shown = asked.get((scoped.key, scoped.name.field))
                if shown is None or (scoped.nested and not shown.nested):
                    self._pick(scoped, view, level)
        return tuple(
            pick if is_internal(pick, view) else self._pick(pick, view, level)
            for pick in asked.values()
        )

    def _expand_stars(self, query: Query, view: View) -> list[Pick]:
        """Write `*` out: the own columns and the keys of to-many fields; `*.*` opens every relation.

        What is named beside it is asked for as well, and `deep` holds for what `*` names, too.
        """
        stars = [pick for pick in query.picks if pick.key == STAR.key]
        named = [pick for pick in query.picks if pick.key != STAR.key]
        if not stars:
            return named
        star = reduce(merged_picks, stars)
        deep, deeper = dict(query.deep), star.nested is not None
        spread = []
        for name, found in view.collection.fields.items():
            link = link_of(self.catalogue, view.collection, name)
            opens = view.sees(name) and self._may_follow_field(name, view)
            if opens and (not link or not link.to_many or deeper or self._has_key(link)):
                spread.append(with_star_fields(Pick(name, FieldName(name), deep.get(name)), star))
            elif found.column and view.sees(name):
                spread.append(Pick(name, FieldName(name)))
        return [
            *spread,
            *(
                with_star_fields(pick, star)
                if self._may_see_and_follow(pick.name.base_field, view)
                else pick
                for pick in named
            ),
        ]

    def _may_see_and_follow(self, name: str, view: View) -> bool:
        return view.sees(name) and self._may_follow_field(name, view)

    def _may_follow_field(self, name: str, view: View) -> bool:
        """Tell whether the caller may go where a field leads to, if anywhere."""
        if self._targets(name, view):
            return True
        link = link_of(self.catalogue, view.collection, name)
        return link is not None and self._may_follow(link, view)

    def _targets(self, name: str, view: View) -> list[str]:
        arms = target_collections(self.catalogue, view.collection, name)
        links = {arm: link_of(self.catalogue, view.collection, f"{name}:{arm}") for arm in arms}
        return [arm for arm, link in links.items() if link and self._may_follow(link, view)]

    def _may_follow(self, link: Link, view: View) -> bool:
        """Tell whether the caller sees the other end of a link and the columns that tell of it."""
        target = self.lookup(link.target)
        told = link.collection_field is None or view.sees(link.collection_field)
        return target is not None and told and (not link.to_many or target.sees(link.far))

    def _has_key(self, link: Link) -> bool:
        """Tell whether the items of a link can be listed by key, or have none."""
        target = self.lookup(link.target)
        key = target.collection.primary_key if target else None
        return target is not None and (key is None or target.sees(key))

    def _per_target(self, pick: Pick, view: View, deep: Mapping[str, Query]) -> list[Pick]:
        """A many-to-any field that is opened without saying for which collection is meant for all that fit."""
        arms = (
            ()
            if ":" in pick.name.field
            else target_collections(self.catalogue, view.collection, pick.name.field)
        )
        own = {arm: deep[f"{pick.key}:{arm}"] for arm in arms if f"{pick.key}:{arm}" in deep}
        nested = pick.nested or (Query(picks=()) if own else None)
        if nested is None or not arms:
            return [pick]
        self._field(view, pick.name.base_field)
        found = []
        for arm in self._targets(pick.name.field, view):
            known = self.view(arm)
            fitting = tuple(
                inner
                for inner in nested.picks
                if inner.key == STAR.key or known.sees(inner.name.base_field)
            )
            if fitting or not nested.picks:
                name = replace(pick.name, field=f"{pick.name.field}:{arm}")
                found.append(
                    replace(pick, name=name, nested=replace(own.get(arm, nested), picks=fitting))
                )
        if not found:
            missing = nested.picks[0] if nested.picks else pick
            raise self._unknown_field(view, missing.name.field)
        return found

    def _pick(self, pick: Pick, view: View, level: int) -> Pick:
        found = self._field(view, view.own_name(pick.name))
        if pick.name.function:
            return self._function(pick, found, view)
        link = link_of(self.catalogue, view.collection, pick.name.field)
        if pick.nested is None and not (link and link.to_many):
            astray = pick.name.field != found.name and (
                link is None or not self._may_follow(link, view)
            )
            if found.column is None or astray:
                raise self._unknown_field(view, pick.name.field)
            return replace(pick, name=self._with_mask(replace(pick.name, field=found.name), view))
        if link is None:
            raise self._unknown_field(view, found.name, because="it leads to no other collection")
        name, target = self._follow(pick.name, link, view)
        nested = self._listed_by_key(pick.nested or Query(picks=(), window=self.page), target)
        return replace(pick, name=name, nested=self.query(nested, target, level + 1, link=link))

    def _function(self, pick: Pick, found: Field, view: View) -> Pick:
        name = self._readable_name(pick.name, view)
        if pick.nested:
            raise invalid_query(
                f'"{pick.key}" is a function and cannot be opened', parameter="fields"
            )
        if found.column is None and name.target_rule is None:
            raise self._unknown_field(view, found.name)
        return replace(pick, name=name)

    def _listed_by_key(self, nested: Query, target: View) -> Query:
        """Items of which nothing is asked are listed by key; without a key, by all their columns."""
        if nested.picks or nested.aggregates or nested.groups:
            return nested
        if key := target.collection.primary_key:
            self._field(target, key)
            return replace(nested, picks=(Pick(key, FieldName(key)),), keys_only=True)
        columns = (found.name for found in target.collection.columns if target.sees(found.name))
        return replace(nested, picks=tuple(Pick(name, FieldName(name)) for name in columns))

    def _aggregate(self, aggregate: Aggregate, view: View) -> Aggregate:
        if aggregate.name.field == "*":
            return aggregate
        return replace(aggregate, name=self._readable_name(aggregate.name, view))

    # Which rows

    def filter(self, said: Filter, view: View, level: int) -> Filter:
        """Return a filter whose names the caller may ask for."""
        match said:
            case And(items) | Or(items):
                return replace(said, items=tuple(self.filter(item, view, level) for item in items))
            case AtField():
                return self._at(said, view, level)
            case Some() | OperatorTest():
                raise invalid_query("An operator needs a field to stand at", parameter="filter")
            case AboutItem():
                raise AssertionError("no request says this")

    def _at(self, said: AtField, view: View, level: int) -> Filter:
        name, inner = said.name, said.inner
        found = self._field(view, view.own_name(name))
        link = link_of(self.catalogue, view.collection, name.field)
        if link is None or name.function or not has_item_test(inner):
            return AtField(self._tested_name(name, view), self._on_field(inner, found))
        if isinstance(inner, And | Or) and not link.to_many and has_key_test(inner):
            return self.filter(distributed_over_items(name, inner), view, level)
        if isinstance(inner, And | Or) and has_quantifier(inner):
            return self.filter(quantifiers_alone(name, inner), view, level)
        self._check_depth(level + 1)
        name, target = self._follow(name, link, view)
        return AtField(name, self._guard_related(inner, target, level + 1))

    def _tested_name(self, name: FieldName, view: View) -> FieldName:
        """A function sees what its field shows; a collection behind a field's name is there to be followed only."""
        return (
            self._with_mask(name, view)
            if name == FieldName(name.base_field)
            else self._readable_name(name, view)
        )

    def _guard_related(self, inner: Filter, target: View, level: int) -> Filter:
        if isinstance(inner, Some):
            return replace(inner, inner=self.filter(inner.inner, target, level))
        return self.filter(inner, target, level)

    def _on_field(self, said: Filter, found: Field) -> Filter:
        """Check a filter that stands at a field of its own."""
        match said:
            case And(items) | Or(items):
                return replace(said, items=tuple(self._on_field(item, found) for item in items))
            case OperatorTest(operator, operands):
                if found.is_secret and operator not in SECRET_OPERATORS:
                    raise self._secret_field(found)
                return replace(
                    said, operands=tuple(self._guard_operand(operand) for operand in operands)
                )
            case AtField() | Some() | AboutItem():
                raise self._no_relation(found)

    def _guard_operand(self, operand: Operand) -> Operand:
        """A path from the caller is read like any other."""
        if not isinstance(operand, CallerValue) or not operand.path:
            return operand
        self._check_depth(len(operand.path))
        start = self.view(operand.collection)
        return replace(operand, path=self._path(operand.path, start), allowed=start.rule)

    # In which order

    def _sort(
        self, query: Query, view: View, level: int, link: Link | None
    ) -> tuple[SortTerm, ...]:
        """Sort as said, else as relation or collection do; the primary key last, so that pages never overlap."""
        said = tuple(self._term(term, view, level) for term in query.sort)
        if query.groups or query.aggregates:
            return said
        usual = () if said else default_sort(view.collection, link)
        last = tie_breakers(view.collection)
        seen = [
            name
            for name in (*usual, *last)
            if name.field == view.collection.primary_key or view.sees(name.field)
        ]
        return (*said, *(SortTerm((self._ordering(name, view),)) for name in seen))

    def _ordering(self, name: FieldName, view: View) -> FieldName:
        """The primary key orders every row, even those in which it is not there for the caller."""
        return name if name.field == view.collection.primary_key else self._with_mask(name, view)

    def _term(self, term: SortTerm, view: View, level: int) -> SortTerm:
        if term.aggregate:
            return replace(term, aggregate=self._aggregate(term.aggregate, view))
        self._check_depth(level + len(term.path) - 1)
        return replace(term, path=self._path(term.path, view))

    def _path(self, path: tuple[FieldName, ...], view: View) -> tuple[FieldName, ...]:
        *steps, last = path
        found = []
        for step in steps:
            passed = self._field(view, step.base_field)
            link = link_of(self.catalogue, view.collection, step.field)
            if link is None:
                raise self._no_relation(passed)
            name, view = self._follow(step, link, view)
            found.append(name)
        return (*found, self._readable_name(last, view))

    # Names

    def _with_mask(self, name: FieldName, view: View) -> FieldName:
        """Return a name with the rule under which its field is there."""
        own = view.own_name(name)
        return replace(name, when=view.mask(own), members=view.members.get(own))

    def _readable_name(self, name: FieldName, view: View) -> FieldName:
        found = self._field(view, name.field)
        if found.is_secret:
            raise self._secret_field(found)
        link = (
            link_of(self.catalogue, view.collection, name.field)
            if name.function == "count"
            else None
        )
        return (
            self._follow(name, link, view)[0]
            if link and link.to_many
            else self._with_mask(name, view)
        )

    def _follow(self, name: FieldName, link: Link, view: View) -> tuple[FieldName, View]:
        """Return the name of a step with the rules on either side of it, and what is seen beyond."""
        if not self._may_follow(link, view):
            self.view(link.target)
            raise self._unknown_field(view, name.field)
        target = self.view(link.target)
        told = view.mask(link.collection_field) if link.collection_field else None
        when = both(view.mask(name.base_field), told)
        target_rule = both(target.rule, far_mask(link, target))
        return replace(
            name, when=None if when == And(()) else when, target_rule=target_rule
        ), target

    def _field(self, view: View, name: str) -> Field:
        if not view.sees(name):
            raise self._unknown_field(view, name)
        return view.collection.fields[name]

    def _check_depth(self, level: int) -> None:
        if level > self.depth:
            raise invalid_query(f"It goes deeper than {self.depth} relations")

    def _unknown_field(self, view: View, name: str, because: str = "it does not exist") -> Refused:
        if not self.explains:
            return forbidden()
        reason = f'The field "{name}" of "{view.collection.name}" cannot be read: {because}'
        return invalid_query(reason, collection=view.collection.name, field=name)

    def _no_relation(self, found: Field) -> Refused:
        """Where a field leads to is told like what is there: nowhere is as good as to what is hidden."""
        if not self.explains:
            return forbidden()
        reason = f'The field "{found.name}" of "{found.collection}" leads to no other collection'
        return invalid_query(reason, collection=found.collection, field=found.name)

    def _secret_field(self, found: Field) -> Refused:
        reason = f'The field "{found.name}" of "{found.collection}" is secret and can only be tested for null and empty'
        return invalid_query(reason, collection=found.collection, field=found.name)
