"""The grants of `app_access`: what an admin app must read to start (docs/permissions.md)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from cms.access.policy import ALL_FIELDS, StoredGrant
from cms.query.language.ast import And, AtField, Constant, Filter, OperatorTest, Or
from cms.query.language.filters import parse_filter
from cms.query.language.literals import RuleLiterals
from cms.query.rules.payload_rules import parse_rule
from cms.schema.names import FieldName
from cms.schema.system import (
    COLLECTIONS,
    FIELDS,
    NOTIFICATIONS,
    PERMISSIONS,
    PRESETS,
    RELATIONS,
    ROLES,
    SETTINGS,
    SHARES,
    TRANSLATIONS,
    USERS,
)

# Presets of a person, of a role, or of everybody: the columns `user` and `role` tell which.
_PERSON = {"user": {"_eq": "$CURRENT_USER"}}
_TEAM = {"user": {"_null": True}, "role": {"_eq": "$CURRENT_ROLE"}}
_EVERYBODY = {"user": {"_null": True}, "role": {"_null": True}}

OWN_PROFILE_FIELDS = (
    "first_name",
    "last_name",
    "password",
    "language",
    "appearance",
    "theme_light_overrides",
    "theme_dark_overrides",
    "avatar",
    "tags",
    "location",
    "title",
    "description",
    "email_notifications",
)
"""Fields of their own account that all users with app access may change.

The second factor has endpoints of its own.
"""

_OWN_ACCOUNT = {"id": {"_eq": "$CURRENT_USER"}}


def _grant(
    collection: str, rule: Mapping[str, object], fields: tuple[str, ...], *, action: str = "read"
) -> StoredGrant:
    return StoredGrant(
        collection,
        action,
        frozenset(fields),
        rule=parse_filter(rule, RuleLiterals()),
        rule_source=rule,
    )


_RECIPIENT = {"recipient": {"_eq": "$CURRENT_USER"}}

# The preset sets `user` where it is left out, and the validation refuses any other.
_OWN_NEW_PRESETS = StoredGrant(
    PRESETS,
    "create",
    frozenset({ALL_FIELDS}),
    presets={"user": "$CURRENT_USER"},
    validation=parse_rule({"user": {"_eq": "$CURRENT_USER"}, "role": {"_null": True}}),
)

_OWN_SHARE = {"user_created": {"_eq": "$CURRENT_USER"}}
_SHARE_SETTINGS = ("name", "role", "password", "date_start", "date_end", "max_uses")

# Read once for the process: the rules are the same for every caller.
_OWN_GRANTS = (
    _grant(USERS, _OWN_ACCOUNT, (ALL_FIELDS,)),
    _grant(USERS, _OWN_ACCOUNT, OWN_PROFILE_FIELDS, action="update"),
    _grant(
        ROLES,
        {"id": {"_eq": "$CURRENT_ROLE"}},
        (
            "id",
            "name",
            "icon",
            "description",
            "parent",
            "enforce_tfa",
            "admin_access",
            "app_access",
        ),
    ),
    _grant(PERMISSIONS, {"role": {"_eq": "$CURRENT_ROLE"}}, (ALL_FIELDS,)),
    _grant(PRESETS, {"_or": [_PERSON, _TEAM, _EVERYBODY]}, (ALL_FIELDS,)),
    _OWN_NEW_PRESETS,
    _grant(PRESETS, _PERSON, (ALL_FIELDS,), action="update"),
    _grant(PRESETS, _PERSON, (ALL_FIELDS,), action="delete"),
    _grant(NOTIFICATIONS, _RECIPIENT, (ALL_FIELDS,)),
    _grant(NOTIFICATIONS, _RECIPIENT, ("status",), action="update"),
    _grant(NOTIFICATIONS, _RECIPIENT, (ALL_FIELDS,), action="delete"),
    _grant(TRANSLATIONS, {}, (ALL_FIELDS,)),
    _grant(SHARES, _OWN_SHARE, (ALL_FIELDS,)),
    # Permissions for the action `share` decide which items may be shared.
    _grant(SHARES, {}, (*_SHARE_SETTINGS, "id", "collection", "item"), action="create"),
    _grant(SHARES, _OWN_SHARE, (*_SHARE_SETTINGS, "id"), action="update"),
    _grant(SHARES, _OWN_SHARE, (ALL_FIELDS,), action="delete"),
)

PUBLIC_SETTINGS = (
    "project_name",
    "project_descriptor",
    "project_url",
    "project_color",
    "project_logo",
    "public_favicon",
    "public_foreground",
    "public_background",
    "public_note",
    "default_language",
)

PUBLIC_SETTINGS_GRANT = StoredGrant(SETTINGS, "read", frozenset(PUBLIC_SETTINGS))
"""The fields of the settings that everybody may read."""


_COLLECTION_FIELDS = (
    "collection",
    "icon",
    "color",
    "note",
    "hidden",
    "singleton",
    "translations",
    "accountability",
    "sort",
    "collapse",
    "versioning",
)
_FIELD_FIELDS = (
    "id",
    "collection",
    "field",
    "special",
    "interface",
    "display",
    "readonly",
    "hidden",
    "sort",
    "width",
    "translations",
    "note",
    "required",
    "searchable",
    "search_weight",
)
_RELATION_FIELDS = ("id", "many_collection", "many_field", "one_collection", "one_deselect_action")
"""The columns of the structure that name no other collection or field.

/collections, /fields and /relations answer with the rest, redacted
(cms/access/structure_redaction.py).
"""


def app_grants(grants: Iterable[StoredGrant]) -> list[StoredGrant]:
    """Return the grants of app access for a caller with these grants.

    Of the structure the caller reads only the collections and fields that the grants name.
    """
    fields: dict[str, set[str]] = {}
    # Grants that cannot be applied give no rights, and so show no names either.
    for grant in grants:
        if grant.problem is None:
            fields.setdefault(grant.collection, set()).update(grant.fields)
    field_rule = _any_of(_named_fields("collection", "field", fields))
    relation_rule = And(
        (
            _any_of(_named_fields("many_collection", "many_field", fields)),
            _one_of("one_collection", fields),
        )
    )
    return [
        *_OWN_GRANTS,
        _structure_grant(COLLECTIONS, _one_of("collection", fields), _COLLECTION_FIELDS),
        _structure_grant(FIELDS, field_rule, _FIELD_FIELDS),
        _structure_grant(RELATIONS, relation_rule, _RELATION_FIELDS),
    ]


def _named_fields(owner: str, field: str, fields: Mapping[str, set[str]]) -> Iterator[Filter]:
    """Yield filters for rows about these fields; the columns `owner` and `field` name them."""
    whole_collections = [collection for collection, names in fields.items() if ALL_FIELDS in names]
    # One `_in` for all collections whose fields are all named, instead of a condition for each.
    yield _one_of(owner, whole_collections)
    for collection, names in fields.items():
        if ALL_FIELDS not in names:
            yield And((_one_of(owner, [collection]), _one_of(field, sorted(names))))


def _one_of(column: str, values: Iterable[str]) -> Filter:
    return AtField(FieldName(column), OperatorTest("_in", (Constant(tuple(values)),)))


def _any_of(rules: Iterable[Filter]) -> Filter:
    return Or(tuple(rules))


def _structure_grant(collection: str, rule: Filter, fields: tuple[str, ...]) -> StoredGrant:
    return StoredGrant(
        collection, "read", frozenset(fields), rule=rule, rule_source="what permissions name"
    )
