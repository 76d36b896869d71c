"""What a caller may write: the permissions that allow the write of an item."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from cachebox import LRUCache

from cms.access.abilities import effective_grants
from cms.access.guard import view_of
from cms.access.guarded_rules import (
    NO_ROWS,
    UNRESTRICTED,
    GuardedGrant,
    GuardedRule,
    all_of,
    any_of,
)
from cms.access.policy import GrantKey, Policy, StoredGrant, is_covered
from cms.access.recorded_lookups import RecordingCatalogue
from cms.access.views import any_rule, grants_covering, rules_of
from cms.caches import bounded_cache
from cms.errors import forbidden
from cms.schema.model import Catalogue, Collection


class RulesBefore(NamedTuple):
    """Rules on a row before the write: one to see it, and one to write it."""

    known: GuardedRule
    writable: GuardedRule


class RowRules(NamedTuple):
    """Rules on one row that is written; None is no rule.

    `before` is tried on the row as it was, `after` on the row as it then is.
    """

    before: RulesBefore | None = None
    after: GuardedRule | None = None


NO_ROW_RULES = RowRules()


MAX_RULES_BYTES = 1_000_000
"""Of the combinations of changed fields whose rules are cached; clients choose them."""
_WEIGHT_OF_RULES = 1_000


def _rules_cache() -> LRUCache[Any, Any]:
    # Rules share their parts with the grants.
    return bounded_cache(MAX_RULES_BYTES, lambda _: _WEIGHT_OF_RULES)


@dataclass(frozen=True, slots=True)
class WritePermissions:
    """The permissions of one policy to write.

    Callers with the same policy share it as long as their snapshot lasts, so that each rule is
    guarded and combined only once.
    """

    policy: Policy
    catalogue: Catalogue
    _grants: dict[GrantKey, tuple[GuardedGrant, ...]] = field(default_factory=dict)
    _delete_rules: dict[str, RowRules] = field(default_factory=dict)
    _update_presets: dict[str, bool] = field(default_factory=dict)
    _rules_after: LRUCache[tuple[str, frozenset[str]], GuardedRule | None] = field(
        default_factory=_rules_cache
    )
    _update_rules: LRUCache[tuple[str, frozenset[str]], RowRules | None] = field(
        default_factory=_rules_cache
    )

    def grants(self, collection: Collection, action: str) -> tuple[GuardedGrant, ...]:
        """Return the grants for an action; raises `Refused` FORBIDDEN where there are none."""
        key = collection.name, action
        if key not in self._grants:
            # An empty result is cached as well, and refused each time below.
            self._grants[key] = effective_grants(self.policy, collection, action, self.catalogue)
        if not self._grants[key]:
            raise forbidden()
        return self._grants[key]

    def rule_after(self, collection: Collection, names: Iterable[str]) -> GuardedRule | None:
        """Return the rule of an item whose fields `names` have changed: each needs a permission.

        The same fields get the same object.
        """
        changed = frozenset(names)
        grants = self.grants(collection, "update")
        return self._rules_after.setdefault_with(
            (collection.name, changed), lambda: _rule_after(grants, sorted(changed))
        )

    def writable_fields(
        self, collection: Collection, actions: Sequence[str]
    ) -> frozenset[str] | None:
        """Return the fields that some permission for one of the actions covers.

        None is every field, for administrators. The key is added for callers who may read it and
        may change items: in a payload it says which item is meant.
        """
        if self.policy.is_admin:
            return None
        policy = self.policy
        grants: list[StoredGrant] = []
        for action in actions:
            grants += policy.granted(collection.name, action)
        names = {name for name in collection.fields if is_covered(name, grants)}
        if "update" in actions and policy.granted(collection.name, "update"):
            readable = policy.granted(collection.name, "read")
            names.update(name for name in collection.key_names if is_covered(name, readable))
        return frozenset(names)

    def delete_rules(self, collection: Collection) -> RowRules:
        """Return what a row must fulfil before it is deleted."""
        if collection.name not in self._delete_rules:
            self._delete_rules[collection.name] = self._new_delete_rules(collection)
        return self._delete_rules[collection.name]

    def _new_delete_rules(self, collection: Collection) -> RowRules:
        if self.is_unrestricted(collection, "delete"):
            return NO_ROW_RULES
        rule = any_rule(self.grants(collection, "delete"))
        return RowRules(RulesBefore(self._visibility(collection), rule))

    def update_rules(self, collection: Collection, names: Iterable[str]) -> RowRules | None:
        """Return what a row must fulfil before its fields `names` are changed.

        None where the change depends on the row: if several permissions apply, only those whose
        rule the row fulfils add presets and check validations.
        """
        changed = frozenset(names)
        return self._update_rules.setdefault_with(
            (collection.name, changed), lambda: self._new_update_rules(collection, changed)
        )

    def _new_update_rules(self, collection: Collection, names: frozenset[str]) -> RowRules | None:
        if self.is_unrestricted(collection, "update"):
            return NO_ROW_RULES
        grants = self.grants(collection, "update")
        if len(grants) > 1 and any(grant.presets or grant.validation for grant in grants):
            return None
        # A caller who may update but not read sees no row, and so cannot change one.
        known = self._visibility(collection)
        # A row that fulfils the rule of one of several permissions is refused for its fields only.
        if len(grants) > 1:
            known = any_of([known, *rules_of(grants)])
        # Each field needs a permission of its own, before the change as after it.
        writable = self.rule_after(collection, names) or UNRESTRICTED
        return RowRules(RulesBefore(known, writable))

    def _visibility(self, collection: Collection) -> GuardedRule:
        """Return the rule of the rows that the caller may read."""
        view = view_of(collection.name, catalogue=self.catalogue, policy=self.policy)
        return view.rule if view else NO_ROWS

    def has_update_presets(self, collection: Collection) -> bool:
        """Tell whether any permission has presets for changes.

        Only the stored row tells which permissions apply, and so which presets a change gets.
        """
        name = collection.name
        if name not in self._update_presets:
            grants = self.policy.granted(name, "update")
            self._update_presets[name] = any(grant.presets for grant in grants)
        return self._update_presets[name]

    def is_unrestricted(self, collection: Collection, action: str) -> bool:
        """Tell whether every permission for the action is without a rule."""
        return all(grant.rule == UNRESTRICTED for grant in self.grants(collection, action))


def record_rules(
    policy: Policy, collection: Collection, action: str, catalogue: RecordingCatalogue
) -> None:
    """Record the lookups of all rules on rows that `WritePermissions` has for an action."""
    catalogue.collections.get(collection.name)
    effective_grants(policy, collection, action, catalogue)
    view_of(collection.name, catalogue=catalogue, policy=policy)


def has_all_covered(grants: tuple[GuardedGrant, ...], names: Iterable[str]) -> bool:
    """Tell whether each field is covered by some grant."""
    return all(is_covered(name, grants) for name in names)


def rule_of_grants(grants: Iterable[GuardedGrant]) -> GuardedRule | None:
    """Return the rule that an item must fulfil after the write; None is no rule."""
    return _unless_unrestricted(any_rule(grants))


def _rule_after(grants: tuple[GuardedGrant, ...], names: list[str]) -> GuardedRule | None:
    if not names:
        return rule_of_grants(grants)
    # Each changed field needs a permission of its own, and the same row must fulfil all of them.
    rules_by_field: list[GuardedRule] = []
    for name in names:
        rules_by_field.append(any_rule(grants_covering(grants, {name})))
    return _unless_unrestricted(all_of(rules_by_field))


def _unless_unrestricted(rule: GuardedRule) -> GuardedRule | None:
    return None if rule == UNRESTRICTED else rule
