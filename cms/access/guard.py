"""The only door from what a request said to what may be planned: every name is checked as if it were read."""

from __future__ import annotations

from dataclasses import dataclass, replace

from cms.access.policy import Policy
from cms.errors import Problem, Refused, forbidden, invalid_query, not_found
from cms.query.ast import STAR, And, At, Current, Filter, Name, Operand, Or, Pick, Query, Some, Term, Test, Window
from cms.query.guarded import Guarded
from cms.query.limits import MAX_FIELDS, MAX_FIELDS_IN_ALL
from cms.query.operators import SECRET_OPERATORS
from cms.query.walk import Link, arms_of, leads_on, link_of, links_from
from cms.schema.model import Catalogue, Collection, Field, Kind


def guard(
    query: Query,
    collection: str,
    *,
    catalogue: Catalogue,
    policy: Policy,
    depth: int,
    page: Window | None = None,
) -> Guarded:
    """Return the query as this caller may ask it: names checked, `*` written out.

    `depth` is how many relations deep it may go, `page` how many keys a to-many field lists that is not opened.
    Raises `Refused`: FORBIDDEN for whatever is hidden or missing, and
    for an administrator NOT_FOUND (collection) or INVALID_QUERY (field) with its name.
    """
    found = readable(collection, catalogue=catalogue, policy=policy)
    return Guarded(found, _Guard(catalogue, policy, depth, page).query(query, found, 0))


def readable(collection: str, *, catalogue: Catalogue, policy: Policy) -> Collection:
    """Return the collection when the caller may read it; raises `Refused` FORBIDDEN or NOT_FOUND."""
    if not policy.admin:
        raise forbidden()
    found = catalogue.collections.get(collection)
    if found is None or found.kind is Kind.FOLDER:
        raise not_found("collection")
    return found


def writable(collection: str, *, catalogue: Catalogue, policy: Policy) -> Collection:
    """Return the collection when the caller may write its items; raises `Refused` FORBIDDEN or NOT_FOUND."""
    found = readable(collection, catalogue=catalogue, policy=policy)
    if found.system or not found.writable:
        raise Refused(Problem("FORBIDDEN", f'The items of "{collection}" can only be read here.'))
    return found


@dataclass(slots=True)
class _Guard:
    """Counts fields while it walks: `*.*.*` opens every relation of every relation."""

    catalogue: Catalogue
    policy: Policy
    depth: int
    page: Window | None
    fields: int = 0

    def query(self, query: Query, collection: Collection, level: int) -> Query:
        self._check_depth(level)
        for group in query.groups:
            self._comparable(collection, group)
        for aggregate in query.aggregates:
            if aggregate.field != "*":
                self._comparable(collection, Name(aggregate.field))
        return replace(
            query,
            picks=self._picks(query, collection, level),
            deep=(),
            filter=self._filter(query.filter, collection, level),
            sort=tuple(self._term(term, collection, level) for term in query.sort),
        )

    def _picks(self, query: Query, collection: Collection, level: int) -> tuple[Pick, ...]:
        asked: dict[tuple[str, str], Pick] = {}
        for pick in self._written_out(query, collection):
            for scoped in self._scoped(pick, collection):
                before = asked.get((scoped.key, scoped.name.field))
                asked[scoped.key, scoped.name.field] = _united(scoped, before) if before else scoped
        self.fields += len(asked)
        if len(asked) > MAX_FIELDS:
            raise invalid_query(f"It asks for more than {MAX_FIELDS} fields", parameter="fields")
        if self.fields > MAX_FIELDS_IN_ALL:
            raise invalid_query(f"It opens more than {MAX_FIELDS_IN_ALL} fields in all", parameter="fields")
        return tuple(self._pick(pick, collection, level) for pick in asked.values())

    def _written_out(self, query: Query, collection: Collection) -> list[Pick]:
        """Write `*` out: the own columns and the keys of to-many fields; `*.*` opens every relation.

        What is named beside it is asked for as well, and `deep` holds for what `*` names, too.
        """
        stars = [pick for pick in query.picks if pick.key == STAR.key]
        named = [pick for pick in query.picks if pick.key != STAR.key]
        if not stars:
            return named
        links, deep = dict(links_from(self.catalogue, collection)), dict(query.deep)
        opened = {*links, *(name for name in collection.fields if arms_of(self.catalogue, collection, name))}
        spread = [
            _opened(Pick(name, Name(name), deep.get(name)), stars[0]) if name in opened else Pick(name, Name(name))
            for name, field in collection.fields.items()
            if field.column or name in links
        ]
        return [*spread, *(_opened(pick, stars[0]) if pick.name.bare in opened else pick for pick in named)]

    def _scoped(self, pick: Pick, collection: Collection) -> list[Pick]:
        """A many-to-any field that is opened without saying for which collection is meant for all that fit."""
        arms = arms_of(self.catalogue, collection, pick.name.field) if pick.nested else ()
        if not arms or not pick.nested:
            return [pick]
        found = []
        for arm in arms:
            known = self.catalogue.collections[arm].fields
            fitting = tuple(inner for inner in pick.nested.picks if inner == STAR or inner.name.bare in known)
            if fitting or not pick.nested.picks:
                name = replace(pick.name, field=f"{pick.name.field}:{arm}")
                found.append(replace(pick, name=name, nested=replace(pick.nested, picks=fitting)))
        if not found:
            raise self._unknown(collection, pick.nested.picks[0].name.field)
        return found

    def _pick(self, pick: Pick, collection: Collection, level: int) -> Pick:
        field = self._field(collection, pick.name.bare)
        if pick.name.function:
            self._comparable(collection, pick.name)
        link = link_of(self.catalogue, collection, pick.name.field)
        if pick.name.function and pick.nested:
            raise invalid_query(f'"{pick.key}" is a function and cannot be opened', parameter="fields")
        if pick.name.function or (pick.nested is None and not (link and link.to_many)):
            if field.column is None and not (link and pick.name.function):
                raise self._unknown(collection, field.name)
            return replace(pick, name=replace(pick.name, field=pick.name.bare))
        if link is None:
            raise self._unknown(collection, field.name, because="it leads to no other collection")
        target, nested = self._target(link), pick.nested or Query(picks=(), window=self.page)
        if not nested.picks and not nested.aggregates and not nested.groups and not target.primary_key:
            columns = tuple(Pick(field.name, Name(field.name)) for field in target.columns)
            nested = replace(nested, picks=columns)  # there is no key to list
        return replace(pick, nested=self.query(nested, target, level + 1))

    def _filter(self, said: Filter, collection: Collection, level: int) -> Filter:
        match said:
            case And(items) | Or(items):
                return replace(said, items=tuple(self._filter(item, collection, level) for item in items))
            case At():
                return self._at(said, collection, level)
            case Some() | Test():
                raise invalid_query("An operator needs a field to stand at", parameter="filter")

    def _at(self, said: At, collection: Collection, level: int) -> Filter:
        name, inner = said.name, said.inner
        field = self._field(collection, name.bare)
        link = link_of(self.catalogue, collection, name.field)
        if link is None or name.function or not leads_on(inner):
            self._own(inner, field)
            return said
        if isinstance(inner, And | Or) and not link.to_many and _tests_key(inner):
            return self._filter(_distributed(name, inner), collection, level)
        if isinstance(inner, And | Or) and any(isinstance(item, Some) for item in inner.items):
            return self._filter(_apart(name, inner), collection, level)
        self._check_depth(level + 1)
        return replace(said, inner=self._beyond(inner, self._target(link), level + 1))

    def _beyond(self, inner: Filter, target: Collection, level: int) -> Filter:
        if isinstance(inner, Some):
            return replace(inner, inner=self._filter(inner.inner, target, level))
        return self._filter(inner, target, level)

    def _own(self, said: Filter, field: Field) -> None:
        """Check a filter that stands at a field of its own."""
        match said:
            case And(items) | Or(items):
                for item in items:
                    self._own(item, field)
            case Test(operator, operands):
                if field.secret and operator not in SECRET_OPERATORS:
                    raise self._secret(field)
                for operand in operands:
                    self._operand(operand)
            case At() | Some():
                raise self._no_relation(field)

    def _term(self, term: Term, collection: Collection, level: int) -> Term:
        if term.aggregate:
            if term.aggregate.field != "*":
                self._comparable(collection, Name(term.aggregate.field))
            return term
        self._check_depth(level + len(term.path) - 1)
        self._path(term.path, collection)
        return term

    def _path(self, path: tuple[Name, ...], collection: Collection) -> None:
        *steps, last = path
        for step in steps:
            field = self._field(collection, step.bare)
            link = link_of(self.catalogue, collection, step.field)
            if link is None:
                raise self._no_relation(field)
            collection = self._target(link)
        self._comparable(collection, last)

    def _operand(self, operand: Operand) -> None:
        """A path from the caller is read like any other."""
        if isinstance(operand, Current) and operand.path:
            self._check_depth(len(operand.path))
            start = readable(operand.collection, catalogue=self.catalogue, policy=self.policy)
            self._path(tuple(Name(step) for step in operand.path), start)

    def _comparable(self, collection: Collection, name: Name) -> None:
        field = self._field(collection, name.field)
        if field.secret:
            raise self._secret(field)

    def _field(self, collection: Collection, name: str) -> Field:
        field = collection.fields.get(name)
        if field is None:
            raise self._unknown(collection, name)
        return field

    def _target(self, link: Link) -> Collection:
        return readable(link.target, catalogue=self.catalogue, policy=self.policy)

    def _check_depth(self, level: int) -> None:
        if level > self.depth:
            raise invalid_query(f"It goes deeper than {self.depth} relations")

    def _unknown(self, collection: Collection, name: str, because: str = "it does not exist") -> Refused:
        if not self.policy.admin:
            return forbidden()
        reason = f'The field "{name}" of "{collection.name}" cannot be read: {because}'
        return invalid_query(reason, collection=collection.name, field=name)

    def _no_relation(self, field: Field) -> Refused:
        reason = f'The field "{field.name}" of "{field.collection}" leads to no other collection'
        return invalid_query(reason, collection=field.collection, field=field.name)

    def _secret(self, field: Field) -> Refused:
        reason = f'The field "{field.name}" of "{field.collection}" is secret and can only be tested for null and empty'
        return invalid_query(reason, collection=field.collection, field=field.name)


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


def _distributed(name: Name, inner: And | Or) -> Filter:
    """Split what is said of a to-one's key from what is said of the item beyond: at most one item makes them one."""
    return replace(inner, items=tuple(At(name, item) for item in inner.items))


def _apart(name: Name, inner: And | Or) -> Filter:
    """Let each `_some` and `_none` stand alone; what is said beside them is meant of one and the same item."""
    alone = tuple(At(name, item) for item in inner.items if isinstance(item, Some))
    others = tuple(item for item in inner.items if not isinstance(item, Some))
    return replace(inner, items=(*alone, At(name, replace(inner, items=others))) if others else alone)


def _tests_key(inner: Filter) -> bool:
    match inner:
        case And(items) | Or(items):
            return any(_tests_key(item) for item in items)
        case At() | Some():
            return False
        case Test():
            return True
