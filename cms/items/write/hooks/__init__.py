"""The hooks of the service's own tables, which apply to nested writes of them as well."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from cms.items.write.hooks.flows import FLOW_HOOKS, OPERATION_HOOKS
from cms.items.write.hooks.hook import SystemTableHooks
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
    FLOWS,
    NOTIFICATIONS,
    OPERATIONS,
    PANELS,
    PERMISSIONS,
    PRESETS,
    ROLES,
    SETTINGS,
    SHARES,
    TRANSLATIONS,
    USERS,
)

NO_HOOKS = SystemTableHooks()

HOOKS: Mapping[str, SystemTableHooks] = MappingProxyType(
    {
        USERS: USER_HOOKS,
        ROLES: ROLE_HOOKS,
        PERMISSIONS: PERMISSION_HOOKS,
        PRESETS: PRESET_HOOKS,
        SETTINGS: SETTINGS_HOOKS,
        SHARES: SHARE_HOOKS,
        FLOWS: FLOW_HOOKS,
        NOTIFICATIONS: NOTIFICATION_HOOKS,
        OPERATIONS: OPERATION_HOOKS,
        DASHBOARDS: DASHBOARD_HOOKS,
        PANELS: PANEL_HOOKS,
        TRANSLATIONS: TRANSLATION_HOOKS,
    }
)


def hooks_of(collection: str) -> SystemTableHooks:
    """Return the hooks of a collection; collections of users have none."""
    return HOOKS.get(collection, NO_HOOKS)
