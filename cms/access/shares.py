"""The rows that a share shows: its item, and rows that are related to it (docs/shares.md)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, fields, replace
from typing import Any

from cms.access.guarded_rules import UNRESTRICTED, GuardedGrant, GuardedRule, all_of, any_of
from cms.access.name_guard import ViewLookup, back_reference_condition
from cms.access.policy import ALL_FIELDS, CallerValues, SharedItem, StoredGrant
from cms.access.views import View
from cms.query.language.ast import Caller, CallerKey, Constant
from cms.query.plan.bindings import Placeholder
from cms.query.plan.conditions import typed_test
from cms.query.plan.guarded import GuardedTest
from cms.query.plan.links import Link, any_links, link_of, reverse_link
from cms.query.plan.read_plan import (
    All,
    AnyOf,
    CallerPath,
    Exists,
    JsonOperand,
    JsonTest,
    LinkStep,
    Predicate,
    SearchMatch,
    TypedTest,
    Value,
    VisibleMembers,
)
from cms.schema.model import Catalogue, Collection
from cms.schema.system import FILES, USERS, is_system

_SHAREABLE_SYSTEM_COLLECTIONS = frozenset({FILES, USERS})
"""The system collections whose rows a share may show, where they are related to its item."""


@dataclass(frozen=True, slots=True)
class _ShareStep:
    """A step from one collection to the next, in rows that fulfil `when`.

    `allowed` is the rule of the rows that it leads to, where it reads a column of theirs.
    """

    source: Collection
    link: Link
    when: Predicate
    allowed: Predicate | None


@dataclass(frozen=True, slots=True)
class ShareRules:
    """Makes the rules of one share; the lookups are those of the unlimited policies."""

    item: SharedItem
    catalogue: Catalogue
    of_role: ViewLookup
    of_creator: ViewLookup
    shared_by_creator: ViewLookup

    def grants(
        self, collection: Collection, grants: tuple[GuardedGrant, ...]
    ) -> tuple[GuardedGrant, ...]:
        """Return the grants of the role within the share; none where nothing can be reached."""
        rules = list(self._rules(collection))
        if not rules:
            return ()
        # The rules of one share on a collection are equal, whatever predicates they are made of.
        reach = any_of(rules)
        shared: list[GuardedGrant] = []
        for grant in grants:
            shared.append(replace(grant, rule=all_of([grant.rule, reach])))
        return tuple(shared)

    def _rules(self, collection: Collection) -> Iterator[GuardedRule]:
        root = self._root()
        if root is None:
            return
        if collection.name == self.item.collection:
            yield GuardedRule(("shared", self.item.key), root)
        for number, predicate in enumerate(self._ways_to(collection, root)):
            # The source holds the number of the way, because predicates cannot be compared. The
            # numbers stay the same, since the policy of a share belongs to one snapshot.
            yield GuardedRule(("related", self.item.key, number), predicate)

    def _ways_to(self, collection: Collection, root: Predicate) -> Iterator[Predicate]:
        """Yield the condition of each way from the item to rows of a collection.

        A way is one relation of the item, or two: the second leads on from rows that belong to the
        item, as those of a junction do, to the rows that they name.
        """
        for step in self._steps(self.item.collection):
            if step.link.target == collection.name:
                yield _back(step, root)
            if step.link.to_many:
                for onward in self._steps(step.link.target):
                    if onward.link.target == collection.name and not onward.link.to_many:
                        # From the end: a row of the junction leads to the row, and the shared item
                        # to the junction.
                        yield _back(onward, All((onward.when, _back(step, root))))

    def _steps(self, name: str) -> Iterator[_ShareStep]:
        """Yield the relations of a collection that the role may read, on either side."""
        view = self.of_role(name)
        if view is None:
            return
        for link_field, link in _links(self.catalogue, view.collection):
            if view.includes(link_field) and self._may_follow(link, view):
                yield self._step(view, link_field, link)

    def _may_follow(self, link: Link, view: View) -> bool:
        target = self.of_role(link.target)
        if target is None or (link.collection_field and not view.includes(link.collection_field)):
            return False
        return not link.to_many or target.includes(link.far.name)

    def _step(self, view: View, link_field: str, link: Link) -> _ShareStep:
        rules = [view.rule, view.mask(link_field) or UNRESTRICTED]
        if link.collection_field:
            rules.append(view.mask(link.collection_field) or UNRESTRICTED)
        when = all_of(rules)
        return _ShareStep(view.collection, link, when.predicate, self._back_reference(link))

    def _back_reference(self, link: Link) -> Predicate | None:
        """Return in which rows of a to-many's items the role may read the column to the item."""
        target = self.of_role(link.target)
        if target is None:
            return None
        return back_reference_condition(link, target)

    def _root(self) -> Predicate | None:
        """Return the condition of the shared item; None where nobody could see it.

        The role may read it, and its creator may still read and share it.
        """
        name = self.item.collection
        of_role = self.of_role(name)
        of_creator = self.of_creator(name)
        shared_by_creator = self.shared_by_creator(name)
        if of_role is None or of_creator is None or shared_by_creator is None:
            return None
        # Another program may have dropped the primary key of the table since it was shared.
        if of_role.collection.primary_key is None:
            return None
        key = of_role.collection.key
        is_item = typed_test(GuardedTest("_eq", (Constant(self.item.key),)), Value(key))
        rules = [of_role.rule.predicate]
        for view in (of_creator, shared_by_creator):
            # $CURRENT_USER in the creator's rules is the creator, not the person who opens the
            # share.
            rules.append(with_caller(view.rule.predicate, self.item.creator_values))
        return All((is_item, *rules))


def _links(catalogue: Catalogue, collection: Collection) -> Iterator[tuple[str, Link]]:
    for name in collection.fields:
        link = link_of(catalogue, collection, name)
        if link:
            yield name, link
        for any_link in any_links(catalogue, collection, name):
            yield name, any_link


def _back(step: _ShareStep, source: Predicate) -> Predicate:
    """Return the condition of rows that a step leads to from rows that fulfil `source`."""
    link = reverse_link(step.link, step.source)
    where = All((step.when, source))
    return Exists(LinkStep(link, when=step.allowed), where)


def with_caller(condition: Predicate, caller: CallerValues) -> Predicate:
    """Return a condition whose variables stand for one caller, whoever asks."""
    rewritten: Predicate = _with_caller(condition, caller)
    return rewritten


def for_nobody(grant: GuardedGrant) -> GuardedGrant:
    """Return a grant of the Public role, whose variables stand for nobody, whoever asks."""
    nobody = CallerValues(None, None)
    rule = GuardedRule(("public", grant.rule.source), with_caller(grant.rule.predicate, nobody))
    return replace(grant, rule=rule)


_PARTS = (
    All,
    AnyOf,
    TypedTest,
    JsonTest,
    JsonOperand,
    Exists,
    LinkStep,
    CallerPath,
    Value,
    SearchMatch,
    VisibleMembers,
)
"""The types of which conditions consist, besides placeholders."""


def _with_caller(part: Any, caller: CallerValues) -> Any:
    if isinstance(part, tuple):
        return tuple(_with_caller(inner, caller) for inner in part)
    if isinstance(part, Placeholder):
        return _placeholder(part, caller)
    if not isinstance(part, _PARTS):
        return part
    # Conditions are frozen dataclasses: their fields are all that they consist of.
    changes: dict[str, Any] = {}
    for field in fields(part):
        changes[field.name] = _with_caller(getattr(part, field.name), caller)
    return replace(part, **changes)


def _placeholder(placeholder: Placeholder, caller: CallerValues) -> Placeholder:
    operand = placeholder.operand
    if isinstance(operand, Constant) and isinstance(operand.value, tuple):
        values = tuple(_known_values(operand.value, caller))
        return replace(placeholder, operand=Constant(values))
    if not isinstance(operand, CallerKey):
        return placeholder
    value = _value_of(operand, caller)
    if value is None:
        return replace(placeholder, operand=Constant(None), convert=_null)
    return replace(placeholder, operand=Constant(value))


def _known_values(values: Iterable[object], caller: CallerValues) -> Iterator[object]:
    """Yield the values of a list, without variables that have none for this caller."""
    for value in values:
        known = _value_of(value, caller)
        if known is not None:
            yield known


def _value_of(value: object, caller: CallerValues) -> object:
    if not isinstance(value, CallerKey):
        return value
    return caller.user if value.start is Caller.USER else caller.role


def _null(value: object) -> None:
    """Convert a variable without a value: a comparison with NULL holds for no row."""


def role_grants(
    grants: Iterable[StoredGrant], collection: str, catalogue: Catalogue
) -> list[StoredGrant]:
    """Return the grants of a role that a share of an item of a collection may use."""
    related = related_collections(collection, catalogue)
    usable: list[StoredGrant] = []
    for grant in grants:
        if grant.action == "read" and grant.collection in related:
            usable.append(grant)
    return usable


def all_grants(collection: str, catalogue: Catalogue) -> list[StoredGrant]:
    """Return the grants of a role with admin_access for a share: all fields, but not of users."""
    every_field = frozenset({ALL_FIELDS})
    related = related_collections(collection, catalogue) - {USERS}
    return [StoredGrant(name, "read", every_field) for name in sorted(related)]


def related_collections(name: str, catalogue: Catalogue) -> frozenset[str]:
    """Return the collections that an item's share may show, the item's own among them."""
    return frozenset(filter(is_shareable, _collections_near(name, catalogue)))


def _collections_near(name: str, catalogue: Catalogue) -> Iterator[str]:
    """Yield a collection, and those that one or two relations lead to from it."""
    yield name
    for link in _links_from(name, catalogue):
        yield link.target
        # The second step starts only from rows that belong to the item. Rows that the item points
        # to may be shared by all items, and would lead to the whole database.
        if link.to_many:
            for onward in _links_from(link.target, catalogue):
                yield onward.target


def is_shareable(collection: str) -> bool:
    """Tell whether a share may show rows of a collection, whatever its role may read."""
    return not is_system(collection) or collection in _SHAREABLE_SYSTEM_COLLECTIONS


def _links_from(name: str, catalogue: Catalogue) -> Iterator[Link]:
    collection = catalogue.collections.get(name)
    if collection is not None:
        for _, link in _links(catalogue, collection):
            yield link
