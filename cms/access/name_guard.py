"""Names of a query resolved, and checked as if they were read: fields, steps of paths, targets."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

from cms.access.json_names import at_path, holds_json
from cms.access.views import View
from cms.errors import Refused, forbidden, invalid_query, not_found
from cms.query.plan.guarded import GuardedValue
from cms.query.plan.links import Link, any_links, link_back, link_of
from cms.query.plan.read_plan import LinkStep, Predicate, both
from cms.schema.model import Catalogue, Field
from cms.schema.names import FieldName, FollowName, dotted_name

ViewLookup = Callable[[str], View | None]
"""Returns the part of a collection that the caller sees; None for a hidden collection."""


class GuardedValuePath(NamedTuple):
    """A path of relations, and the value at its end."""

    steps: tuple[LinkStep, ...]
    value: GuardedValue


@dataclass(slots=True)
class NameGuard:
    """Resolves names for one caller, and puts the rules of permissions beside their targets.

    Hidden and missing names give the same FORBIDDEN, unless the guard `explains`: administrators
    see which name is wrong. A query may follow relations `depth` levels deep.
    """

    catalogue: Catalogue
    lookup: ViewLookup
    explains: bool
    depth: int
    # For /utils/explain, and for the statistics of these collections
    # (cms/items/read/estimated_counts.py).
    touched_collections: set[str] = field(default_factory=set)
    _links: dict[tuple[str, str, str | None], Link | None] = field(default_factory=dict)
    _any_links: dict[tuple[str, str], tuple[Link, ...]] = field(default_factory=dict)

    def view(self, collection: str) -> View:
        """Return what the caller sees of a collection; raises `Refused` FORBIDDEN or NOT_FOUND."""
        view = self.lookup(collection)
        if view is None:
            raise not_found("collection") if self.explains else forbidden()
        self.touched_collections.update((collection, *view.other_collections))
        return view

    # Fields and their values

    def visible_field(self, view: View, name: str) -> Field:
        """Return a field that the caller sees; raises `Refused` for any other."""
        if not view.includes(name):
            raise self.unknown_field(view, name)
        return view.collection.fields[name]

    def value(self, field: Field, view: View, function: str | None = None) -> GuardedValue:
        """Return the value of a field, null in the rows in which the caller may not read it."""
        # An administrator, or a view of a rule: nothing is hidden.
        if view.masks is None:
            return GuardedValue(field, function)
        # Of the history, each collection's rules say which members of a revision may be read.
        members = view.members.get(field.name)
        return GuardedValue(field, function, when=_condition(view, field.name), members=members)

    def readable_value(self, name: FieldName, view: View) -> GuardedValue:
        """Return the value of a name, with its rules; secrets are refused."""
        if dotted := dotted_name(name, view.includes):
            if not holds_json(self.visible_field(view, dotted.head.written)):
                raise self.unknown_field(view, name.written)
            return self.json_value(dotted.head, dotted.steps, view)
        # As it is written: a column of another program may have a colon in its own name.
        named_field = self.visible_field(view, name.written)
        if named_field.is_secret:
            raise self.secret_field(named_field)
        if name.function == "count":
            link = self.link(FieldName(named_field.name), view)
            # The count of related items; of a JSON or csv field, `count` is a function of its type.
            if link and link.to_many:
                step = self.step(name, link, view, self.follow(name, link, view))
                return GuardedValue(named_field, counted=step)
        return self.value(named_field, view, name.function)

    def json_value(self, name: FieldName, steps: tuple[str, ...], view: View) -> GuardedValue:
        """Return the value at a path of a JSON field, with its rules."""
        document = self.visible_field(view, name.written)
        if not holds_json(document):
            raise self.no_relation(document)
        return at_path(self.readable_value(name, view), steps)

    # Relations

    def link(self, name: FieldName, view: View) -> Link | None:
        """Return the link that a name stands for, None where it is no relation."""
        # One query names the same relations in fields, filters and sorts; each is looked up once.
        key = view.collection.name, name.field, name.target
        if key not in self._links:
            self._links[key] = link_of(self.catalogue, view.collection, name.field, name.target)
        return self._links[key]

    def path(self, path: tuple[FieldName, ...], view: View, level: int = 0) -> GuardedValuePath:
        """Return the steps and the value of a path from a level, with the rules of every step."""
        # Of `author.country.name`, `author` and `country` are steps, and `name` is the value.
        *names, last = path
        steps: list[LinkStep] = []
        for index, name in enumerate(names):
            name = view.resolve_name(name)
            step_field = self.visible_field(view, name.field)
            link = self.link(name, view)
            if link is None and holds_json(step_field):
                inner = tuple(map(str, path[index + 1 :]))
                return GuardedValuePath(tuple(steps), self.json_value(name, inner, view))
            if link is None:
                raise self.no_relation(step_field)
            self.check_depth(level + index + 1, "sort")
            target = self.follow(name, link, view)
            steps.append(self.step(name, link, view, target))
            view = target
        return GuardedValuePath(tuple(steps), self.readable_value(last, view))

    def follow(self, name: FieldName, link: Link, view: View) -> View:
        """Return the view of the target of a link that the caller may follow."""
        # For an administrator the first refusal names the collection, if it is missing.
        if not self.may_follow(link, view):
            self.view(link.target)
            raise self.unknown_field(view, name.written)
        return self.view(link.target)

    def step(self, name: FieldName, link: Link, view: View, target: View) -> LinkStep:
        """Return the step over a link, with the rules on either side."""
        allowed = both(target.rule.predicate, back_reference_condition(link, target))
        return LinkStep(link, self.link_condition(name, link, view), allowed)

    def step_back(self, follow: FollowName, view: View) -> LinkStep:
        """Return the step to the items whose field leads to an item of a view, with their rules.

        Items in which the caller may not read that field are left out.
        """
        target = self.lookup(follow.collection)
        link = None
        if target and all(map(target.includes, filter(None, follow[1:]))):
            link = link_back(self.catalogue, target.collection, follow, view.collection)
        if target is None or link is None:
            raise self.unknown_field(view, str(follow), because="no such field leads here")
        allowed: Predicate | None = self.view(follow.collection).rule.predicate
        for column in filter(None, follow[1:]):
            allowed = both(allowed, _condition(target, column))
        return LinkStep(link, allowed=allowed)

    def link_condition(self, name: FieldName, link: Link, view: View) -> Predicate | None:
        """Return the rule of the rows in which the link may be followed; None is all rows."""
        if link.collection_field is None:
            return _condition(view, name.field)
        # Following the link to this target reveals the value of the other column.
        return both(_condition(view, name.field), _condition(view, link.collection_field))

    def may_follow(self, link: Link, view: View) -> bool:
        """Tell whether the caller sees the target of a link and the columns that the link reads."""
        target = self.lookup(link.target)
        if target is None:
            return False
        if link.collection_field is not None and not view.includes(link.collection_field):
            return False
        # A list reveals, for each of its items, the value of the column that points back.
        return not link.to_many or target.includes(link.far.name)

    def may_follow_field(self, name: str, view: View) -> bool:
        """Tell whether the caller may follow a field to at least one collection."""
        link = self.link(FieldName(name), view)
        if link is not None and self.may_follow(link, view):
            return True
        return bool(self.targets(name, view))

    def any_links(self, field: str, view: View) -> tuple[Link, ...]:
        """Return the links of a many-to-any field, none for any other field."""
        key = view.collection.name, field
        if key not in self._any_links:
            self._any_links[key] = any_links(self.catalogue, view.collection, field)
        return self._any_links[key]

    def targets(self, field: str, view: View) -> list[str]:
        """Return the collections that the caller may follow a many-to-any field to."""
        links = self.any_links(field, view)
        return [link.target for link in links if self.may_follow(link, view)]

    # Refusals

    def check_depth(self, level: int, parameter: str) -> None:
        """Raise `Refused` INVALID_QUERY for more levels of relations than the settings allow."""
        if level > self.depth:
            reason = f"It goes deeper than {self.depth} relations"
            raise invalid_query(reason, parameter=parameter)

    def unknown_field(self, view: View, name: str, because: str = "it does not exist") -> Refused:
        """Return the refusal of a field that is hidden or missing."""
        if not self.explains:
            return forbidden()
        reason = f'The field "{name}" of "{view.collection.name}" cannot be read: {because}'
        return invalid_query(reason, collection=view.collection.name, field=name)

    def no_relation(self, plain_field: Field) -> Refused:
        """Return the refusal of a path through a field that is no relation.

        It is the FORBIDDEN of a hidden target: a difference would reveal hidden collections.
        """
        if not self.explains:
            return forbidden()
        reason = (
            f'The field "{plain_field.name}" of "{plain_field.collection}" '
            "leads to no other collection"
        )
        return invalid_query(reason, collection=plain_field.collection, field=plain_field.name)

    def secret_field(self, secret: Field) -> Refused:
        """Return the refusal of a secret where its value would be read or compared."""
        reason = (
            f'The field "{secret.name}" of "{secret.collection}" is secret '
            "and can only be tested for null and empty"
        )
        return invalid_query(reason, collection=secret.collection, field=secret.name)


def back_reference_condition(link: Link, target: View) -> Predicate | None:
    """Return the rule of the to-many items whose column that points back may be read."""
    return _condition(target, link.far.name) if link.to_many else None


def _condition(view: View, field: str) -> Predicate | None:
    """Return the rule of the rows in which a field may be read; None is all rows."""
    mask = view.mask(field)
    return None if mask is None else mask.predicate
