"""The hooks of the service's own tables, which apply to nested writes of them as well."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from cms.items.write.hooks.panels import DASHBOARD_HOOKS, PANEL_HOOKS
from cms.items.write.hooks.permissions import PERMISSION_HOOKS
from cms.items.write.hooks.personal import (
    NOTIFICATION_HOOKS,
    PRESET_HOOKS,
    TRANSLATION_HOOKS,
)
from cms.items.write.hooks.roles import ROLE_HOOKS
from cms.items.write.hooks.settings import SETTINGS_HOOKS
from cms.items.write.hooks.shares import SHARE_HOOKS
from cms.items.write.hooks.users import USER_HOOKS
from cms.schema.system import (
    DASHBOARDS,
    NOTIFICATIONS,
    PANELS,
    PERMISSIONS,
    PRESETS,
    ROLES,
    SETTINGS,
    SHARES,
    TRANSLATIONS,
    USERS,
)
from cms.store.store import Store
from cms.store.table_hooks import TableHooks

NO_HOOKS = TableHooks()

HOOKS: Mapping[str, TableHooks] = MappingProxyType(
    {
        USERS: USER_HOOKS,
        ROLES: ROLE_HOOKS,
        PERMISSIONS: PERMISSION_HOOKS,
        PRESETS: PRESET_HOOKS,
        SETTINGS: SETTINGS_HOOKS,
        SHARES: SHARE_HOOKS,
        NOTIFICATIONS: NOTIFICATION_HOOKS,
        DASHBOARDS: DASHBOARD_HOOKS,
        PANELS: PANEL_HOOKS,
        TRANSLATIONS: TRANSLATION_HOOKS,
    }
)
"""Without those of flows and operations, which depend on the types of operations (`flows.py`)."""


def hooks_of(store: Store, collection: str) -> TableHooks:
    """Return the hooks of a collection; most collections of users have none."""
    return store.hooks.get(collection, NO_HOOKS)
