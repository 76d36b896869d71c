"""What a caller may write: the permissions that speak for an item (decisions, section 11)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from cms.access.abilities import effective_grants
from cms.access.guard import view_of
from cms.access.policy import Grant, GrantKey, Policy
from cms.access.views import any_rule
from cms.errors import forbidden
from cms.query.language.ast import EVERYTHING, NOTHING, And, Filter, Or
from cms.schema.model import Catalogue, Collection


@dataclass(frozen=True, slots=True)
class RowRules:
    """Rules on one row that is written: `before` are whether it is seen and whether it may be written, as it was.

    `after` is what it must fulfil then. None is no rule.
    """

    before: tuple[Filter, Filter] | None = None
    after: Filter | None = None


@dataclass(slots=True)
class WritePermissions:
    """The permissions of one caller to write, each settled once."""

    policy: Policy
    catalogue: Catalogue
    _grants: dict[GrantKey, tuple[Grant, ...]] = field(default_factory=dict)
    _rules_after: dict[tuple[str, frozenset[str]], Filter | None] = field(default_factory=dict)

    def grants(self, collection: Collection, action: str) -> tuple[Grant, ...]:
        """Return what the caller holds for an action; raises `Refused` FORBIDDEN for nothing."""
        place = collection.name, action
        if place not in self._grants:
            self._grants[place] = effective_grants(self.policy, collection, action, self.catalogue)
        if not self._grants[place]:
            raise forbidden()
        return self._grants[place]

    def rule_after(self, collection: Collection, names: Iterable[str]) -> Filter | None:
        """Return what an item must fulfil once fields of it have changed: for each a permission that speaks of it.

        The same fields get the same object.
        """
        place = collection.name, frozenset(names)
        if place not in self._rules_after:
            self._rules_after[place] = _rule_after(
                self.grants(collection, "update"), sorted(place[1])
            )
        return self._rules_after[place]

    def writable_fields(
        self, collection: Collection, actions: Iterable[str]
    ) -> frozenset[str] | None:
        """Return the fields that some permission for one of the actions speaks of; None is for administrators.

        The key is one of them for who may read it and change anything: there it tells which item is meant.
        """
        if self.policy.is_admin:
            return None
        granted = {
            action: self.policy.granted(collection.name, action) for action in (*actions, "read")
        }
        grants = [grant for action in actions for grant in granted[action]]
        names = {name for name in collection.fields if any(grant.covers(name) for grant in grants)}
        key = str(collection.primary_key)
        if granted.get("update") and any(grant.covers(key) for grant in granted["read"]):
            names.add(key)
        return frozenset(names)

    def row_rules(self, collection: Collection, action: str) -> RowRules | None:
        """Return what a row must fulfil before it is changed or deleted.

        None where only the row itself tells what counts: of several permissions to change it those that hold for it.
        """
        if self.is_unrestricted(collection, action):
            return RowRules()
        grants = self.grants(collection, action)
        if action == "update" and len(grants) > 1:
            return None
        view = view_of(collection.name, catalogue=self.catalogue, policy=self.policy)
        return RowRules(before=(view.rule if view else NOTHING, any_rule(grants)))

    def is_unrestricted(self, collection: Collection, action: str) -> bool:
        """Tell whether every permission for the action holds for every item."""
        return all(grant.rule == EVERYTHING for grant in self.grants(collection, action))


def grants_covering(grants: Iterable[Grant], names: Iterable[str]) -> tuple[Grant, ...]:
    """Return the grants that speak of all the fields."""
    return tuple(grant for grant in grants if all(grant.covers(name) for name in names))


def has_all_covered(grants: tuple[Grant, ...], names: Iterable[str]) -> bool:
    """Tell whether each field is spoken of by some grant."""
    return all(any(grant.covers(name) for grant in grants) for name in names)


def rule_of_grants(grants: Iterable[Grant]) -> Filter | None:
    """Return what an item must fulfil after the write; None is nothing."""
    rules = tuple(grant.rule for grant in grants)
    if EVERYTHING in rules:
        return None
    return rules[0] if len(rules) == 1 else Or(rules)


def _rule_after(grants: tuple[Grant, ...], names: list[str]) -> Filter | None:
    rules: list[Filter] = []
    for name in names:
        rule = rule_of_grants(grants_covering(grants, [name]))
        if rule is not None and rule not in rules:
            rules.append(rule)
    if not names:
        return rule_of_grants(grants)
    return (rules[0] if len(rules) == 1 else And(tuple(rules))) if rules else None
