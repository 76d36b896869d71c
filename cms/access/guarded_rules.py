"""Rules of permissions that can be applied: their names are resolved, and their types fit."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TypeVar

from cms.access.policy import FULL_GRANT, Grant, StoredGrant
from cms.query.language.ast import EVERYTHING, NOTHING, And, Or
from cms.query.plan.read_plan import EVERY_ROW, NO_ROW, All, AnyOf, Predicate
from cms.query.rules.resolved_rules import ResolvedRule, resolve_rule
from cms.schema.model import Catalogue, Collection

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class GuardedRule:
    """A rule on the rows of one collection, and the filter (or filters) that it was made of.

    Rules of one `source` are equal: predicates hold converters, which cannot be compared. A rule
    whose source compares with a geometry has no hash.
    """

    source: object
    predicate: Predicate = field(compare=False)
    _hash: int | None = field(default=None, init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        # Rules are part of the keys of cached statements, and a source may be large: its hash is
        # computed once, and not for each request.
        try:
            object.__setattr__(self, "_hash", hash(self.source))
        except TypeError:
            return

    def __hash__(self) -> int:
        if self._hash is None:
            raise TypeError("a rule that compares with a geometry has no hash")
        return self._hash


UNRESTRICTED = GuardedRule(EVERYTHING, EVERY_ROW)
"""The rule that every row fulfils."""
NO_ROWS = GuardedRule(NOTHING, NO_ROW)
"""The rule that no row fulfils."""


@dataclass(frozen=True, slots=True)
class GuardedGrant(Grant):
    """A permission whose rules can be applied: `rule` to rows, `validation` to payloads."""

    rule: GuardedRule = UNRESTRICTED
    validation: ResolvedRule | None = None


FULL_GUARDED_GRANT = GuardedGrant(FULL_GRANT.collection, FULL_GRANT.action, FULL_GRANT.fields)
"""`FULL_GRANT`, guarded."""


def with_rule(
    grant: StoredGrant, rule: GuardedRule, collection: Collection, catalogue: Catalogue
) -> GuardedGrant:
    """Return a grant as one that can be applied."""
    validation = None
    if grant.validation is not None:
        validation = resolve_rule(grant.validation, collection, catalogue)
    return GuardedGrant(
        collection=grant.collection,
        action=grant.action,
        fields=grant.fields,
        presets=grant.presets,
        id=grant.id,
        rule_source=grant.rule_source,
        rule=rule,
        validation=validation,
    )


def all_of(rules: Iterable[GuardedRule]) -> GuardedRule:
    """Return the rule of rows that fulfil all rules; without rules that is every row."""
    different = _without_repetitions(rules)
    # A rule that every row fulfils adds nothing to the other rules.
    if UNRESTRICTED in different:
        different.remove(UNRESTRICTED)
    if not different:
        return UNRESTRICTED
    if len(different) == 1:
        return different[0]
    # The source is no filter here, but a tree of filters: it only serves to compare and hash.
    return GuardedRule(And(_sources(different)), All(_predicates(different)))


def any_of(rules: Iterable[GuardedRule]) -> GuardedRule:
    """Return the rule of rows that fulfil at least one rule; without rules that is no row."""
    # Roles that inherit from each other often bring the same rule twice.
    different = _without_repetitions(rules)
    # One permission without a rule is for every row, whatever the others say.
    if UNRESTRICTED in different:
        return UNRESTRICTED
    if not different:
        return NO_ROWS
    if len(different) == 1:
        return different[0]
    return GuardedRule(Or(_sources(different)), AnyOf(_predicates(different)))


def _sources(rules: Iterable[GuardedRule]) -> tuple[object, ...]:
    return tuple(rule.source for rule in rules)


def _predicates(rules: Iterable[GuardedRule]) -> tuple[Predicate, ...]:
    return tuple(rule.predicate for rule in rules)


def _without_repetitions(rules: Iterable[GuardedRule]) -> list[GuardedRule]:
    # A list and not a set: a rule that compares with a geometry has no hash.
    different: list[GuardedRule] = []
    for rule in rules:
        if rule not in different:
            different.append(rule)
    return different


def grouped_by_rule(
    values: Iterable[tuple[GuardedRule, T]],
) -> list[tuple[GuardedRule, list[T]]]:
    """Return each rule with its values, in the order in which the rules first come."""
    # A list and not a dictionary: a rule that compares with a geometry has no hash. There are few
    # rules.
    groups: list[tuple[GuardedRule, list[T]]] = []
    for rule, value in values:
        for known, members in groups:
            if known == rule:
                members.append(value)
                break
        else:
            groups.append((rule, [value]))
    return groups
