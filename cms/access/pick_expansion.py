"""The fields that a query picks, with `*` and the targets of many-to-any fields written out."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from cms.access.name_guard import NameGuard
from cms.access.query_rewriting import merged_queries, with_star_fields
from cms.access.views import View
from cms.query.language.ast import AnyPick, DeepQuery, Pick, Query, Star
from cms.query.plan.links import Link
from cms.schema.names import FieldName

PickPosition = tuple[str, str, str | None]
"""Key, field and target: the targets of a many-to-any field share the key."""

DeepQueries = Mapping[tuple[str, str | None], Query]
"""Queries of fields that only `*` names, by field and target."""


@dataclass(frozen=True, slots=True)
class PickExpansion:
    """Writes out what queries pick, as far as the caller may see it."""

    names: NameGuard

    def picks(self, query: Query, view: View) -> dict[PickPosition, Pick]:
        """Return the picks with `*` written out; picks of the same field are merged."""
        deep = deep_queries(query.deep)
        named: list[Pick] = []
        stars: list[Star] = []
        for pick in query.picks:
            if isinstance(pick, Star):
                stars.append(pick)
            else:
                named.append(pick)
        if stars:
            named = self._with_stars(named, stars, view, deep)
        picks: dict[PickPosition, Pick] = {}
        for pick in named:
            # A field may be named twice, alone and with a target: `item`, `item:headings`.
            for targeted in self.per_target(pick, view, deep):
                position = position_of(targeted)
                if earlier := picks.get(position):
                    nested = merged_queries(targeted.nested, earlier.nested)
                    targeted = replace(targeted, nested=nested)
                picks[position] = targeted
        return picks

    def _with_stars(
        self, named: list[Pick], stars: list[Star], view: View, deep: DeepQueries
    ) -> list[Pick]:
        """Return all fields, and those that are named beside `*`.

        `deep` holds for fields that only `*` names, too.
        """
        nested = None
        for star in stars:
            nested = merged_queries(nested, star.nested)
        star = Star(nested)
        picks = list(self._star_fields(star, view, deep))
        for pick in named:
            if self._may_see_and_follow(pick.name.field, view):
                pick = with_star_fields(pick, star)
            picks.append(pick)
        return picks

    def _star_fields(self, star: Star, view: View, deep: DeepQueries) -> Iterator[Pick]:
        """Yield columns and keys of to-many fields; `*.*` opens all relations."""
        for name, field in view.collection.fields.items():
            if self._star_opens(name, star, view):
                pick = Pick(name, FieldName(name), deep.get((name, None)))
                yield with_star_fields(pick, star)
            elif field.has_value and view.includes(name):
                yield Pick(name, FieldName(name))

    def _star_opens(self, name: str, star: Star, view: View) -> bool:
        """Tell whether `*` shows what a relational field leads to.

        Of a to-many field the keys must be there to list.
        """
        if not self._may_see_and_follow(name, view):
            return False
        link = self.names.link(FieldName(name), view)
        # `*` shows the column of a to-one relation, and the keys of a list; `*.*` opens both.
        if link is None or not link.to_many or star.nested is not None:
            return True
        return self._can_list(link)

    def _may_see_and_follow(self, name: str, view: View) -> bool:
        return view.includes(name) and self.names.may_follow_field(name, view)

    def _can_list(self, link: Link) -> bool:
        """Tell whether the items of a link can be listed by key, or have no key at all."""
        target = self.names.lookup(link.target)
        if target is None:
            return False
        return all(map(target.includes, target.collection.key_names))

    def per_target(self, pick: Pick, view: View, deep: DeepQueries) -> list[Pick]:
        """Return a pick for each target of a many-to-any field that is opened without naming one.

        A target takes the picks that fit its fields; `deep` may hold a query for one target.
        """
        if pick.name.target is not None:
            return [pick]
        field = pick.name.field
        links = self.names.any_links(field, view)
        if not links:
            return [pick]
        queries_by_target = {}
        for link in links:
            if query := deep.get((pick.key, link.target)):
                queries_by_target[link.target] = query
        nested = pick.nested
        # `deep` alone opens its targets: their keys are listed.
        if nested is None and queries_by_target:
            nested = Query(picks=())
        if nested is None:
            return [pick]
        # A hidden field is refused as such, before its targets are looked at.
        self.names.visible_field(view, field)
        picks = []
        for target in self.names.targets(field, view):
            fitting = self._fitting_picks(nested, target)
            # A target that has none of the picked fields shows nothing.
            if fitting or not nested.picks:
                query = replace(queries_by_target.get(target, nested), picks=fitting)
                picks.append(replace(pick, name=replace(pick.name, target=target), nested=query))
        if not picks:
            raise self.names.unknown_field(view, _first_name(nested, pick))
        return picks

    def _fitting_picks(self, query: Query, target: str) -> tuple[AnyPick, ...]:
        view = self.names.view(target)
        fitting: list[AnyPick] = []
        for pick in query.picks:
            # A star fits every target: it shows what there is.
            if isinstance(pick, Star) or view.includes(pick.name.field):
                fitting.append(pick)
        return tuple(fitting)


def deep_queries(deep: tuple[DeepQuery, ...]) -> DeepQueries:
    return {(each.key, each.target): each.query for each in deep}


def position_of(pick: Pick) -> PickPosition:
    return pick.key, pick.name.field, pick.name.target


def _first_name(query: Query, pick: Pick) -> str:
    """Return the first name that a query picks, else that of its own pick."""
    for inner in query.picks:
        if isinstance(inner, Pick):
            return inner.name.written
        if isinstance(inner, Star):
            return "*"
    return pick.name.written
