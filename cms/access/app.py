"""What `app_access` adds: the reads that an admin app needs to start (decisions, section 11)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from cms.access.policy import ALL_FIELDS, Grant
from cms.query.filters import parse_filter
from cms.query.literals import Constants

_PERSON = {"user": {"_eq": "$CURRENT_USER"}}
_TEAM = {"user": {"_null": True}, "role": {"_eq": "$CURRENT_ROLE"}}
_EVERYBODY = {"user": {"_null": True}, "role": {"_null": True}}

_READS: tuple[tuple[str, Mapping[str, object], tuple[str, ...]], ...] = (
    ("system_users", {"id": {"_eq": "$CURRENT_USER"}}, (ALL_FIELDS,)),
    (
        "system_roles",
        {"id": {"_eq": "$CURRENT_ROLE"}},
        ("id", "name", "icon", "description", "parent", "enforce_tfa", "admin_access", "app_access"),
    ),
    ("system_permissions", {"role": {"_eq": "$CURRENT_ROLE"}}, (ALL_FIELDS,)),
    ("system_presets", {"_or": [_PERSON, _TEAM, _EVERYBODY]}, (ALL_FIELDS,)),
    ("system_notifications", {"recipient": {"_eq": "$CURRENT_USER"}}, (ALL_FIELDS,)),
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

EVERYBODYS = Grant("system_settings", "read", frozenset(PUBLIC_SETTINGS))
"""What everybody may know of the settings."""


def app_grants(collections: Iterable[str]) -> list[Grant]:
    """Return the grants of app access for a caller who has rights on these collections."""
    listed = tuple(collections)
    structure = (
        ("system_collections", {"collection": {"_in": [*listed]}}),
        ("system_fields", {"collection": {"_in": [*listed]}}),
        ("system_relations", {"many_collection": {"_in": [*listed]}, "one_collection": {"_in": [*listed]}}),
    )
    found = [_read(name, rule, fields) for name, rule, fields in _READS]
    found += [_read(name, rule, (ALL_FIELDS,)) for name, rule in structure]
    return found


def _read(collection: str, said: Mapping[str, object], fields: tuple[str, ...]) -> Grant:
    return Grant(collection, "read", frozenset(fields), rule=parse_filter(said, Constants()), said=said)
