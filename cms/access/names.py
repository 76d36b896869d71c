"""Every name of a query checked as if it were read, and the rules put beside it (decisions, section 11)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import reduce

from cms.access.views import View
from cms.errors import Refused, forbidden, invalid_query, not_found
from cms.query.ast import (
    KEY,
    STAR,
    VERSION,
    Aggregate,
    And,
    At,
    Current,
    Filter,
    Name,
    OfItem,
    Operand,
    Or,
    Pick,
    Query,
    Some,
    Term,
    Test,
    Window,
    both,
)
from cms.query.limits import MAX_FIELDS, MAX_FIELDS_IN_ALL
from cms.query.operators import SECRET_OPERATORS
from cms.query.plan import tie_breakers, usual_sort
from cms.query.walk import Link, arms_of, leads_on, link_of, quantifies, tests_key
from cms.schema.model import Catalogue, Field

Sight = Callable[[str], View | None]
"""What the caller sees of a collection; None is nothing at all."""


@dataclass(slots=True)
class Walker:
    """Walks one query under one caller's sight; counts fields, for `*.*.*` opens every relation of every relation.

    To a caller that is not `told` the reason, whatever is hidden or missing is the same FORBIDDEN.
    """

    catalogue: Catalogue
    sight: Sight
    told: bool
    depth: int
    page: Window | None = None
    fields: int = 0
    touched: set[str] = field(default_factory=set)

    def view(self, collection: str) -> View:
        """Return what the caller sees of a collection; raises `Refused` FORBIDDEN or NOT_FOUND for nothing."""
        found = self.sight(collection)
        if found is None:
            raise not_found("collection") if self.told else forbidden()
        self.touched.update((collection, *found.behind))
        return found

    def query(self, query: Query, view: View, level: int, *, link: Link | None = None) -> Query:
        """Return the query with `*` and the order written out; `link` is the step that leads to its rows."""
        self._check_depth(level)
        return replace(
            query,
            picks=self._picks(query, view, level),
            deep=(),
            unshown=(),
            filter=self.filter(query.filter, view, level),
            sort=self._sort(query, view, level, link),
            groups=tuple(self._comparable(group, view) for group in query.groups),
            aggregates=tuple(self._aggregate(aggregate, view) for aggregate in query.aggregates),
            allowed=both(self.filter(query.within, view, level), both(view.rule, _far_mask(link, view))),
            searched=tuple(self._named(Name(found.name), view) for found in _searched(view)),
        )

    # What is shown

    def _picks(self, query: Query, view: View, level: int) -> tuple[Pick, ...]:
        asked: dict[tuple[str, str], Pick] = {}
        for pick in self._written_out(query, view):
            for scoped in self._scoped(pick, view, dict(query.deep)):
                before = asked.get((scoped.key, scoped.name.field))
                asked[scoped.key, scoped.name.field] = _united(scoped, before) if before else scoped
        self.fields += len(asked)
        if len(asked) > MAX_FIELDS:
            raise invalid_query(f"It asks for more than {MAX_FIELDS} fields", parameter="fields")
        if self.fields > MAX_FIELDS_IN_ALL:
            raise invalid_query(f"It opens more than {MAX_FIELDS_IN_ALL} fields in all", parameter="fields")
        _refuse_namesakes(asked.values())
        for pick in query.unshown:
            for scoped in self._scoped(pick, view, {}):
                shown = asked.get((scoped.key, scoped.name.field))
                if shown is None or (scoped.nested and not shown.nested):
                    self._pick(scoped, view, level)
        return tuple(pick if _is_stores(pick, view) else self._pick(pick, view, level) for pick in asked.values())

    def _written_out(self, query: Query, view: View) -> list[Pick]:
        """Write `*` out: the own columns and the keys of to-many fields; `*.*` opens every relation.

        What is named beside it is asked for as well, and `deep` holds for what `*` names, too.
        """
        stars = [pick for pick in query.picks if pick.key == STAR.key]
        named = [pick for pick in query.picks if pick.key != STAR.key]
        if not stars:
            return named
        star = reduce(_united, stars)
        deep, deeper = dict(query.deep), star.nested is not None
        spread = []
        for name, found in view.collection.fields.items():
            link = link_of(self.catalogue, view.collection, name)
            opens = view.sees(name) and self._opens(name, view)
            if opens and (not link or not link.to_many or deeper or self._has_key(link)):
                spread.append(_opened(Pick(name, Name(name), deep.get(name)), star))
            elif found.column and view.sees(name):
                spread.append(Pick(name, Name(name)))
        return [*spread, *(_opened(pick, star) if self._leads(pick.name.bare, view) else pick for pick in named)]

    def _leads(self, name: str, view: View) -> bool:
        return view.sees(name) and self._opens(name, view)

    def _opens(self, name: str, view: View) -> bool:
        """Tell whether the caller may go where a field leads to, if anywhere."""
        if self._arms(name, view):
            return True
        link = link_of(self.catalogue, view.collection, name)
        return link is not None and self._goes(link, view)

    def _arms(self, name: str, view: View) -> list[str]:
        arms = arms_of(self.catalogue, view.collection, name)
        links = {arm: link_of(self.catalogue, view.collection, f"{name}:{arm}") for arm in arms}
        return [arm for arm, link in links.items() if link and self._goes(link, view)]

    def _goes(self, link: Link, view: View) -> bool:
        """Tell whether the caller sees the other end of a link and the columns that tell of it."""
        target = self.sight(link.target)
        told = link.told_by is None or view.sees(link.told_by)
        return target is not None and told and (not link.to_many or target.sees(link.far))

    def _has_key(self, link: Link) -> bool:
        """Tell whether the items of a link can be listed by key, or have none."""
        target = self.sight(link.target)
        key = target.collection.primary_key if target else None
        return target is not None and (key is None or target.sees(key))

    def _scoped(self, pick: Pick, view: View, deep: Mapping[str, Query]) -> list[Pick]:
        """A many-to-any field that is opened without saying for which collection is meant for all that fit."""
        arms = () if ":" in pick.name.field else arms_of(self.catalogue, view.collection, pick.name.field)
        own = {arm: deep[f"{pick.key}:{arm}"] for arm in arms if f"{pick.key}:{arm}" in deep}
        nested = pick.nested or (Query(picks=()) if own else None)
        if nested is None or not arms:
            return [pick]
        self._field(view, pick.name.bare)
        found = []
        for arm in self._arms(pick.name.field, view):
            known = self.view(arm)
            fitting = tuple(inner for inner in nested.picks if inner.key == STAR.key or known.sees(inner.name.bare))
            if fitting or not nested.picks:
                name = replace(pick.name, field=f"{pick.name.field}:{arm}")
                found.append(replace(pick, name=name, nested=replace(own.get(arm, nested), picks=fitting)))
        if not found:
            missing = nested.picks[0] if nested.picks else pick
            raise self._unknown(view, missing.name.field)
        return found

    def _pick(self, pick: Pick, view: View, level: int) -> Pick:
        found = self._field(view, view.own_name(pick.name))
        if pick.name.function:
            return self._function(pick, found, view)
        link = link_of(self.catalogue, view.collection, pick.name.field)
        if pick.nested is None and not (link and link.to_many):
            astray = pick.name.field != found.name and (link is None or not self._goes(link, view))
            if found.column is None or astray:
                raise self._unknown(view, pick.name.field)
            return replace(pick, name=self._named(replace(pick.name, field=found.name), view))
        if link is None:
            raise self._unknown(view, found.name, because="it leads to no other collection")
        name, target = self._through(pick.name, link, view)
        nested = self._listed(pick.nested or Query(picks=(), window=self.page), target)
        return replace(pick, name=name, nested=self.query(nested, target, level + 1, link=link))

    def _function(self, pick: Pick, found: Field, view: View) -> Pick:
        name = self._comparable(pick.name, view)
        if pick.nested:
            raise invalid_query(f'"{pick.key}" is a function and cannot be opened', parameter="fields")
        if found.column is None and name.beyond is None:
            raise self._unknown(view, found.name)
        return replace(pick, name=name)

    def _listed(self, nested: Query, target: View) -> Query:
        """Items of which nothing is asked are listed by key; without a key, by all their columns."""
        if nested.picks or nested.aggregates or nested.groups:
            return nested
        if key := target.collection.primary_key:
            self._field(target, key)
            return replace(nested, picks=(Pick(key, Name(key)),), bare=True)
        columns = (found.name for found in target.collection.columns if target.sees(found.name))
        return replace(nested, picks=tuple(Pick(name, Name(name)) for name in columns))

    def _aggregate(self, aggregate: Aggregate, view: View) -> Aggregate:
        if aggregate.name.field == "*":
            return aggregate
        return replace(aggregate, name=self._comparable(aggregate.name, view))

    # Which rows

    def filter(self, said: Filter, view: View, level: int) -> Filter:
        """Return a filter whose names the caller may ask for."""
        match said:
            case And(items) | Or(items):
                return replace(said, items=tuple(self.filter(item, view, level) for item in items))
            case At():
                return self._at(said, view, level)
            case Some() | Test():
                raise invalid_query("An operator needs a field to stand at", parameter="filter")
            case OfItem():
                raise AssertionError("no request says this")

    def _at(self, said: At, view: View, level: int) -> Filter:
        name, inner = said.name, said.inner
        found = self._field(view, view.own_name(name))
        link = link_of(self.catalogue, view.collection, name.field)
        if link is None or name.function or not leads_on(inner):
            return At(self._tested(name, view), self._own(inner, found))
        if isinstance(inner, And | Or) and not link.to_many and tests_key(inner):
            return self.filter(_distributed(name, inner), view, level)
        if isinstance(inner, And | Or) and quantifies(inner):
            return self.filter(_apart(name, inner), view, level)
        self._check_depth(level + 1)
        name, target = self._through(name, link, view)
        return At(name, self._beyond(inner, target, level + 1))

    def _tested(self, name: Name, view: View) -> Name:
        """A function sees what its field shows; a collection behind a field's name is there to be followed only."""
        return self._named(name, view) if name == Name(name.bare) else self._comparable(name, view)

    def _beyond(self, inner: Filter, target: View, level: int) -> Filter:
        if isinstance(inner, Some):
            return replace(inner, inner=self.filter(inner.inner, target, level))
        return self.filter(inner, target, level)

    def _own(self, said: Filter, found: Field) -> Filter:
        """Check a filter that stands at a field of its own."""
        match said:
            case And(items) | Or(items):
                return replace(said, items=tuple(self._own(item, found) for item in items))
            case Test(operator, operands):
                if found.secret and operator not in SECRET_OPERATORS:
                    raise self._secret(found)
                return replace(said, operands=tuple(self._operand(operand) for operand in operands))
            case At() | Some() | OfItem():
                raise self._no_relation(found)

    def _operand(self, operand: Operand) -> Operand:
        """A path from the caller is read like any other."""
        if not isinstance(operand, Current) or not operand.path:
            return operand
        self._check_depth(len(operand.path))
        start = self.view(operand.collection)
        return replace(operand, path=self._path(operand.path, start), allowed=start.rule)

    # In which order

    def _sort(self, query: Query, view: View, level: int, link: Link | None) -> tuple[Term, ...]:
        """Sort as said, else as relation or collection do; the primary key last, so that pages never overlap."""
        said = tuple(self._term(term, view, level) for term in query.sort)
        if query.groups or query.aggregates:
            return said
        usual = () if said else usual_sort(view.collection, link)
        last = tie_breakers(view.collection)
        seen = [name for name in (*usual, *last) if name.field == view.collection.primary_key or view.sees(name.field)]
        return (*said, *(Term((self._ordering(name, view),)) for name in seen))

    def _ordering(self, name: Name, view: View) -> Name:
        """The primary key orders every row, even those in which it is not there for the caller."""
        return name if name.field == view.collection.primary_key else self._named(name, view)

    def _term(self, term: Term, view: View, level: int) -> Term:
        if term.aggregate:
            return replace(term, aggregate=self._aggregate(term.aggregate, view))
        self._check_depth(level + len(term.path) - 1)
        return replace(term, path=self._path(term.path, view))

    def _path(self, path: tuple[Name, ...], view: View) -> tuple[Name, ...]:
        *steps, last = path
        found = []
        for step in steps:
            passed = self._field(view, step.bare)
            link = link_of(self.catalogue, view.collection, step.field)
            if link is None:
                raise self._no_relation(passed)
            name, view = self._through(step, link, view)
            found.append(name)
        return (*found, self._comparable(last, view))

    # Names

    def _named(self, name: Name, view: View) -> Name:
        """Return a name with the rule under which its field is there."""
        own = view.own_name(name)
        return replace(name, when=view.mask(own), members=view.members.get(own))

    def _comparable(self, name: Name, view: View) -> Name:
        found = self._field(view, name.field)
        if found.secret:
            raise self._secret(found)
        link = link_of(self.catalogue, view.collection, name.field) if name.function == "count" else None
        return self._through(name, link, view)[0] if link and link.to_many else self._named(name, view)

    def _through(self, name: Name, link: Link, view: View) -> tuple[Name, View]:
        """Return the name of a step with the rules on either side of it, and what is seen beyond."""
        if not self._goes(link, view):
            self.view(link.target)
            raise self._unknown(view, name.field)
        target = self.view(link.target)
        told = view.mask(link.told_by) if link.told_by else None
        when = both(view.mask(name.bare), told)
        beyond = both(target.rule, _far_mask(link, target))
        return replace(name, when=None if when == And(()) else when, beyond=beyond), target

    def _field(self, view: View, name: str) -> Field:
        if not view.sees(name):
            raise self._unknown(view, name)
        return view.collection.fields[name]

    def _check_depth(self, level: int) -> None:
        if level > self.depth:
            raise invalid_query(f"It goes deeper than {self.depth} relations")

    def _unknown(self, view: View, name: str, because: str = "it does not exist") -> Refused:
        if not self.told:
            return forbidden()
        reason = f'The field "{name}" of "{view.collection.name}" cannot be read: {because}'
        return invalid_query(reason, collection=view.collection.name, field=name)

    def _no_relation(self, found: Field) -> Refused:
        """Where a field leads to is told like what is there: nowhere is as good as to what is hidden."""
        if not self.told:
            return forbidden()
        reason = f'The field "{found.name}" of "{found.collection}" leads to no other collection'
        return invalid_query(reason, collection=found.collection, field=found.name)

    def _secret(self, found: Field) -> Refused:
        reason = f'The field "{found.name}" of "{found.collection}" is secret and can only be tested for null and empty'
        return invalid_query(reason, collection=found.collection, field=found.name)


def _is_stores(pick: Pick, view: View) -> bool:
    """Tell whether the store itself asks: a client's pick of such a key would be of a field of that name."""
    return pick.key in (KEY, VERSION) and pick.name.field == view.collection.primary_key


def _far_mask(link: Link | None, target: View) -> Filter | None:
    """The column that points back from a to-many's items is read, too."""
    return target.mask(link.far) if link and link.to_many else None


def _searched(view: View) -> list[Field]:
    return [found for found in view.collection.columns if found.searched and view.sees(found.name)]


def _opened(pick: Pick, star: Pick) -> Pick:
    """Let a field show what the second star of `*.*` asks of it, besides what is asked of it by name."""
    if star.nested is None or pick.key != pick.name.bare:
        return pick
    return _united(pick, replace(pick, nested=star.nested))


def _united(one: Pick, other: Pick) -> Pick:
    """Ask for what either asks for; the page, order and filter are the first one's where it has any."""
    if one.nested is None or other.nested is None:
        return replace(one, nested=one.nested or other.nested)
    if one.nested.aggregates or one.nested.groups:
        return one
    return replace(one, nested=replace(one.nested, picks=(*other.nested.picks, *one.nested.picks)))


def _refuse_namesakes(picks: Iterable[Pick]) -> None:
    """One key holds one field, or what the collections behind a many-to-any field show of it."""
    meant: dict[str, Name] = {}
    for pick in picks:
        name = replace(pick.name, field=pick.name.bare)
        if meant.setdefault(pick.key, name) != name:
            raise invalid_query(f'Two fields would both be called "{pick.key}"', parameter="fields")


def _distributed(name: Name, inner: And | Or) -> Filter:
    """Split what is said of a to-one's key from what is said of the item beyond: at most one item makes them one."""
    return replace(inner, items=tuple(At(name, item) for item in inner.items))


def _apart(name: Name, inner: And | Or) -> Filter:
    """Let each `_some` and `_none` stand alone; what is said beside them is meant of one and the same item."""
    alone = tuple(At(name, item) for item in inner.items if quantifies(item))
    others = tuple(item for item in inner.items if not quantifies(item))
    return replace(inner, items=(*alone, At(name, replace(inner, items=others))) if others else alone)
