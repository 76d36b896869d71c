"""What one caller may do, as a value (decisions, section 11)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from cms.access.addresses import Networks
from cms.errors import Refused
from cms.query.language.ast import EVERYTHING, NOTHING, Filter
from cms.query.language.filters import parse_filter, require_not_blank
from cms.query.language.literals import RuleLiterals
from cms.query.rules.validation import PayloadRule, parse_rule

ALL_FIELDS = "*"

GrantKey = tuple[str, str]
"""A collection and an action: create, read, update, delete, share."""


@dataclass(frozen=True, slots=True)
class Grant:
    """One permission: `fields` of the rows that fulfil `rule`. With a `problem` it cannot be applied and gives nothing.

    `rule_source` is the rule as it was written; `id` is None for what the service itself grants.
    """

    collection: str
    action: str
    fields: frozenset[str]
    rule: Filter = EVERYTHING
    validation: PayloadRule | None = None
    presets: Mapping[str, object] = field(default_factory=dict)
    id: int | None = None
    rule_source: object = None
    problem: str | None = None

    def covers(self, name: str) -> bool:
        """Tell whether it speaks of a field."""
        return name in self.fields or ALL_FIELDS in self.fields


@dataclass(frozen=True, slots=True)
class Policy:
    """The rights of a caller: an administrator may do everything, others what is granted.

    Policies of one name under one version of the rights are the same, and so share finished statements. A policy
    belongs to one snapshot of the structure; `views` keeps what has been found of it under that.
    """

    is_admin: bool = False
    name: str = ""
    has_app_access: bool = field(default=False, compare=False)
    grants: Mapping[GrantKey, tuple[Grant, ...]] = field(default_factory=dict, compare=False)
    views: dict[GrantKey, Any] = field(default_factory=dict, init=False, compare=False, repr=False)

    def granted(self, collection: str, action: str) -> tuple[Grant, ...]:
        """Return what is granted of a collection, unusable permissions left out."""
        return tuple(
            grant for grant in self.grants.get((collection, action), ()) if grant.problem is None
        )


@dataclass(frozen=True, slots=True)
class Actor:
    """Who calls: the user and role of the request, or neither for the Public role.

    `networks` are those that its roles are bound to; `lacks_tfa` is a user who lacks a second factor that is asked for.
    """

    policy: Policy
    user: str | None = None
    role: str | None = None
    networks: tuple[Networks, ...] = ()
    lacks_tfa: bool = False
    session: str | None = None


ADMIN = Policy(is_admin=True, name="admin")
FULL_GRANT = Grant("*", "*", frozenset({ALL_FIELDS}))
"""What an administrator holds of every collection, for every action."""


def policy_of(name: str, grants: Iterable[Grant], *, has_app_access: bool = False) -> Policy:
    """Return the policy of a caller that is no administrator, whose name stands for what is granted."""
    found: dict[GrantKey, tuple[Grant, ...]] = {}
    for grant in grants:
        place = grant.collection, grant.action
        found[place] = (*found.get(place, ()), grant)
    return Policy(name=name, has_app_access=has_app_access, grants=MappingProxyType(found))


def grant_of(row: Mapping[str, object]) -> Grant:
    """Return the grant that a row of `system_permissions` is; what cannot be read allows nothing."""
    rule, fault = _rule(row["permissions"])
    validation, wrong = _validation(row["validation"])
    fields, presets = row["fields"], row["presets"]
    if presets is not None and not isinstance(presets, Mapping):
        wrong = wrong or "presets is no object"
    number = row["id"]
    return Grant(
        collection=str(row["collection"]),
        action=str(row["action"]),
        fields=frozenset(map(str, fields)) if isinstance(fields, list) else frozenset(),
        rule=rule,
        validation=validation,
        presets=presets if isinstance(presets, Mapping) else {},
        id=number if isinstance(number, int) else None,
        rule_source=row["permissions"],
        problem=fault or wrong,
    )


def parse_permissions(value: object) -> Filter:
    """Return the rule of a permission, null being every row; raises `Refused` INVALID_QUERY for what is none."""
    if value is None:
        return EVERYTHING
    return parse_filter(
        require_not_blank(value, "permissions"), RuleLiterals(), parameter="permissions"
    )


def _rule(value: object) -> tuple[Filter, str | None]:
    """Return a rule and no fault, or a rule that shows no row and why it cannot be read."""
    try:
        return parse_permissions(value), None
    except Refused as refused:
        return NOTHING, refused.problems[0].message


def _validation(value: object) -> tuple[PayloadRule | None, str | None]:
    """Return a validation and no fault, or one that nothing passes and why it cannot be read."""
    try:
        return None if value is None else parse_rule(value), None
    except Refused as refused:
        return PayloadRule(NOTHING), refused.problems[0].message
