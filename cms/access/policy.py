"""The rights of one caller, as a value (docs/permissions.md)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass, field, replace
from hashlib import sha256
from types import MappingProxyType
from typing import NamedTuple

from cms import jsontext
from cms.access.ip_addresses import Networks
from cms.errors import Refused
from cms.query.language.ast import EVERYTHING, NOTHING, Filter
from cms.query.language.filters import parse_filter, require_not_blank
from cms.query.language.literals import RuleLiterals
from cms.query.rules.payload_rules import PayloadRule, parse_rule
from cms.schema.system import FLOWS, OPERATIONS, PERMISSIONS, ROLES, SETTINGS

ALL_FIELDS = "*"

ADMINS_WRITE = frozenset({ROLES, PERMISSIONS, SETTINGS, FLOWS, OPERATIONS})
"""Collections that only administrators write: whoever writes them can give itself any right."""

SETTINGS_WITHOUT_POWER = frozenset(
    {
        "project_name",
        "project_descriptor",
        "project_url",
        "project_color",
        "project_logo",
        "public_note",
        "default_appearance",
    }
)
"""Settings that a permission may let others change."""

GrantKey = tuple[str, str]
"""A collection and an action: create, read, update, delete, share."""


@dataclass(frozen=True, slots=True)
class Grant:
    """One permission on `fields`, apart from its rules on rows and on payloads.

    `rule_source` is the rule as it was written; `id` is None for what the service itself grants.
    """

    collection: str
    action: str
    # Names of fields, or `*` for all of them, also those that are made later.
    fields: frozenset[str]
    presets: Mapping[str, object] = field(default_factory=dict)
    id: int | None = None
    rule_source: object = None

    def covers(self, name: str) -> bool:
        """Tell whether the permission is for a field."""
        return name in self.fields or ALL_FIELDS in self.fields

    def covers_all(self, names: Set[str]) -> bool:
        """Tell whether the permission is for each of the fields."""
        return ALL_FIELDS in self.fields or names <= self.fields


def is_covered(name: str, grants: Iterable[Grant]) -> bool:
    """Tell whether at least one of the permissions is for a field."""
    return any(grant.covers(name) for grant in grants)


@dataclass(frozen=True, slots=True)
class StoredGrant(Grant):
    """A permission as it is stored: the names in its rule may be of no field.

    A `problem` says why the permission cannot be applied; it then grants nothing.
    """

    rule: Filter = EVERYTHING
    validation: PayloadRule | None = None
    problem: str | None = None


class CallerValues(NamedTuple):
    """The user and the role that the variables of a rule stand for."""

    user: str | None
    role: str | None


@dataclass(frozen=True, slots=True)
class SharedItem:
    """The item of a share, and the rights within which it is seen (`cms.access.shares`).

    `role` is the policy of the share's role without the limits of the share; `creator` is that of
    the user who has made it, for whom variables of rules stand. What `public`, the Public role,
    shows to everybody the share shows as well.
    """

    collection: str
    key: str
    role: Policy
    creator: Policy
    creator_values: CallerValues
    public: Policy


# Policies are compared by identity: comparing grants for each request would be slow.
@dataclass(frozen=True, slots=True, eq=False)
class Policy:
    """The rights of a caller: an administrator may do everything, others what is granted.

    Statements are cached under its name, so two policies of one name must grant the same. With
    `shared` the caller sees one item and its related rows.
    """

    is_admin: bool = False
    name: str = ""
    has_app_access: bool = False
    grants: Mapping[GrantKey, tuple[StoredGrant, ...]] = field(default_factory=dict)
    shared: SharedItem | None = None

    def granted(self, collection: str, action: str) -> tuple[StoredGrant, ...]:
        """Return the grants for a collection and an action that can be applied."""
        # The others stay in `grants`: /permissions/explain tells why they cannot be applied.
        grants = self.grants.get((collection, action), ())
        return tuple(grant for grant in grants if grant.problem is None)

    def with_grants(self, name: str, changed: Mapping[GrantKey, tuple[StoredGrant, ...]]) -> Policy:
        """Return a policy with another name, and with other grants for some keys."""
        return replace(self, name=name, grants=MappingProxyType({**self.grants, **changed}))


@dataclass(frozen=True, slots=True)
class Actor:
    """Who calls: the user and role of the request, or neither for the Public role.

    `networks` are those that the roles may be used from; `lacks_tfa` is true for a user who has to
    set up a second factor first.
    """

    policy: Policy
    user: str | None = None
    role: str | None = None
    networks: tuple[Networks, ...] = ()
    lacks_tfa: bool = False
    session: str | None = None


ADMIN = Policy(is_admin=True, name="admin")
FULL_GRANT = StoredGrant("*", "*", frozenset({ALL_FIELDS}))
"""The grant of an administrator for every collection and action."""


def policy_of(
    name: str,
    grants: Iterable[StoredGrant],
    *,
    has_app_access: bool = False,
    shared: SharedItem | None = None,
) -> Policy:
    """Return the policy of a caller who is no administrator."""
    by_key: dict[GrantKey, tuple[StoredGrant, ...]] = {}
    for grant in grants:
        key = grant.collection, grant.action
        by_key[key] = (*by_key.get(key, ()), grant)
    return Policy(
        name=name, has_app_access=has_app_access, grants=MappingProxyType(by_key), shared=shared
    )


def policy_name(source: str) -> str:
    """Return the name of a policy that is made of `source` alone: its digest."""
    return sha256(source.encode()).hexdigest()


def grants_of(permissions: str) -> list[StoredGrant]:
    """Return a list of rows of `system_permissions`, as JSON, as grants."""
    rows = jsontext.loads_stored(permissions)
    if not isinstance(rows, list):
        return []
    return list(map(grant_of, rows))


def grant_of(row: Mapping[str, object]) -> StoredGrant:
    """Return a row of `system_permissions` as a grant; one that cannot be read grants nothing."""
    problems: list[str] = []
    rule = _rule(row["permissions"], problems)
    validation = _validation(row["validation"], problems)
    presets = _presets(row["presets"], problems)
    fields = _fields(row["fields"])
    power = power_problem(str(row["collection"]), str(row["action"]), fields | presets.keys())
    if power:
        problems.append(power)
    number = row["id"]
    return StoredGrant(
        collection=str(row["collection"]),
        action=str(row["action"]),
        fields=fields,
        rule=rule,
        validation=validation,
        presets=presets,
        id=number if isinstance(number, int) else None,
        rule_source=row["permissions"],
        # One problem is enough: a permission that cannot be read as a whole grants nothing.
        problem=next(iter(problems), None),
    )


def power_problem(collection: str, action: str, names: Set[str]) -> str | None:
    """Return why nobody is given an action on fields of a collection, None where it may be given.

    `names` are those of the permission's fields and presets.
    """
    if collection not in ADMINS_WRITE or action not in ("create", "update", "delete"):
        return None
    if collection != SETTINGS or action != "update":
        return f'Only administrators write "{collection}"'
    if names <= SETTINGS_WITHOUT_POWER:
        return None
    without_power = ", ".join(sorted(SETTINGS_WITHOUT_POWER))
    return f'A permission to change "{SETTINGS}" is for fields of these: {without_power}'


def _fields(value: object) -> frozenset[str]:
    # A value that is no list names no field: a permission gives only the fields that it names.
    if not isinstance(value, list):
        return frozenset()
    return frozenset(map(str, value))


def _presets(value: object, problems: list[str]) -> Mapping[str, object]:
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        problems.append("presets is no object")
        return {}
    return value


def parse_permissions(value: object) -> Filter:
    """Return the rule of a permission; null selects every row.

    Raises `Refused` INVALID_QUERY for a value that is no rule.
    """
    if value is None:
        return EVERYTHING
    return parse_filter(
        require_not_blank(value, "permissions"), RuleLiterals(), parameter="permissions"
    )


def _rule(value: object, problems: list[str]) -> Filter:
    """Return a rule; a value that cannot be read is a problem, and shows no row."""
    try:
        return parse_permissions(value)
    except Refused as refused:
        problems.append(refused.problems[0].message)
        return NOTHING


def _validation(value: object, problems: list[str]) -> PayloadRule | None:
    """Return a validation; a value that cannot be read is a problem, and nothing passes it."""
    if value is None:
        return None
    try:
        return parse_rule(value)
    except Refused as refused:
        problems.append(refused.problems[0].message)
        return PayloadRule(NOTHING)
