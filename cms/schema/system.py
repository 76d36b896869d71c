"""The parts of the system collections that the catalogue cannot read from PostgreSQL."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

FieldPlace = tuple[str, str]
"""A collection and a field of it."""


@dataclass(frozen=True, slots=True)
class AliasTarget:
    """The column that points to the rows of a to-many alias field."""

    many_collection: str
    many_field: str


SYSTEM_COLLECTIONS = frozenset(
    {
        "system_activity",
        "system_collections",
        "system_dashboards",
        "system_fields",
        "system_files",
        "system_flows",
        "system_folders",
        "system_notifications",
        "system_operations",
        "system_panels",
        "system_permissions",
        "system_presets",
        "system_relations",
        "system_revisions",
        "system_roles",
        "system_settings",
        "system_shares",
        "system_translations",
        "system_users",
    }
)
"""The collections that the service lists."""

ENDPOINTS: Mapping[str, str] = MappingProxyType(
    {
        "system_activity": "/activity",
        "system_collections": "/collections",
        "system_fields": "/fields",
        "system_files": "/files",
        "system_folders": "/folders",
        "system_permissions": "/permissions",
        "system_relations": "/relations",
        "system_revisions": "/revisions",
        "system_roles": "/roles",
        "system_settings": "/settings",
        "system_users": "/users",
    }
)
"""The paths of the system collections, which /items never shows."""

WRITABLE_COLLECTIONS = frozenset(
    {"system_permissions", "system_roles", "system_settings", "system_users"}
)
"""System collections whose items are written like any others, with the checks of their hooks."""

UNLISTED_TABLES = frozenset(
    {
        "system_dropped_collections",
        "system_idempotency",
        "system_migrations",
        "system_queue",
        "system_recovery_codes",
        "system_sessions",
        "system_version",
    }
)
"""System tables that no request ever sees."""

SINGLETONS = frozenset({"system_settings"})

INTERNAL_COLUMNS: frozenset[FieldPlace] = frozenset(
    ("system_users", name) for name in ("failed_logins", "login_after", "tfa_step", "unverified")
)
"""Columns of listed collections that clients can neither read nor write."""

UNIQUE_IN_ANY_CASE: frozenset[FieldPlace] = frozenset({("system_users", "email")})
"""Columns that are unique without regard to capitals."""

UNRECORDED_COLUMNS: frozenset[FieldPlace] = frozenset({("system_users", "last_access")})
"""Columns that a login changes; a change of nothing else is not recorded."""

SYSTEM_SPECIALS: Mapping[FieldPlace, tuple[str, ...]] = MappingProxyType(
    {
        ("system_users", "password"): ("hash", "conceal"),
        ("system_users", "token"): ("conceal", "digest"),
        ("system_users", "tfa_secret"): ("conceal",),
        ("system_users", "auth_data"): ("conceal",),
        ("system_shares", "password"): ("hash", "conceal"),
        ("system_shares", "date_created"): ("date-created",),
        ("system_shares", "user_created"): ("user-created",),
        ("system_files", "uploaded_on"): ("date-created",),
        ("system_files", "uploaded_by"): ("user-created",),
        ("system_files", "modified_on"): ("date-updated",),
        ("system_files", "modified_by"): ("user-updated",),
        ("system_flows", "date_created"): ("date-created",),
        ("system_flows", "user_created"): ("user-created",),
        ("system_operations", "date_created"): ("date-created",),
        ("system_operations", "user_created"): ("user-created",),
        ("system_dashboards", "date_created"): ("date-created",),
        ("system_dashboards", "user_created"): ("user-created",),
        ("system_panels", "date_created"): ("date-created",),
        ("system_panels", "user_created"): ("user-created",),
        ("system_notifications", "timestamp"): ("date-created",),
        ("system_activity", "timestamp"): ("date-created",),
        ("system_revisions", "created"): ("date-created",),
    }
)
"""The markers of `meta.special` for fields of system collections; json columns need none."""

SYSTEM_ALIASES: Mapping[FieldPlace, AliasTarget] = MappingProxyType(
    {
        ("system_dashboards", "panels"): AliasTarget("system_panels", "dashboard"),
        ("system_flows", "operations"): AliasTarget("system_operations", "flow"),
        ("system_roles", "users"): AliasTarget("system_users", "role"),
        ("system_activity", "revisions"): AliasTarget("system_revisions", "activity"),
    }
)

REFERENCES_WITHOUT_KEY: Mapping[FieldPlace, str] = MappingProxyType(
    {
        ("system_activity", "user"): "system_users",
        ("system_revisions", "activity"): "system_activity",
        ("system_revisions", "parent"): "system_revisions",
    }
)
"""Columns that point to a collection's `id` without a foreign key: the history outlives its rows.
"""

CHECK_RULES: Mapping[str, str] = MappingProxyType(
    {
        "system_collections_accountability_check": "it is all, activity or null",
        "system_collections_collapse_check": "it is open, closed or locked",
        "system_files_focal_point_x_check": "it is a number from 0 to 1",
        "system_files_focal_point_y_check": "it is a number from 0 to 1",
        "system_flows_accountability_check": "it is all, activity or null",
        "system_flows_status_check": "it is active or inactive",
        "system_flows_trigger_check": "it is event, webhook, schedule, manual or operation",
        "system_notifications_status_check": "it is inbox or archived",
        "system_permissions_action_check": "it is create, read, update, delete or share",
        "system_relations_one_deselect_action_check": "it is nullify or delete",
        "system_sessions_holder_check": "a session is of either a user or a share",
        "system_sessions_mode_check": "it is json, cookie or session",
        "system_settings_auth_login_attempts_check": (
            "it is a whole number from 1, or null for no limit"
        ),
        "system_settings_one_row": "there is one row, of the id 1",
        "system_settings_storage_asset_transform_check": "it is all, none or presets",
        "system_users_status_check": "it is active, invited, draft, suspended or archived",
        "system_version_one_row": "there is one row, of the id 1",
    }
)
"""The rules that the checks of the system tables enforce, by the names of their constraints."""
