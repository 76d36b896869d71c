"""What the service minds in system collections, however a write reaches them (decisions, sections 9, 11, 13)."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from cms.items.write.hooks.hook import SystemTableHooks
from cms.items.write.hooks.permissions import PERMISSION_HOOKS
from cms.items.write.hooks.roles import ROLE_HOOKS
from cms.items.write.hooks.settings import SETTINGS_HOOKS
from cms.items.write.hooks.users import USER_HOOKS

NO_HOOKS = SystemTableHooks()

HOOKS: Mapping[str, SystemTableHooks] = MappingProxyType(
    {
        "system_users": USER_HOOKS,
        "system_roles": ROLE_HOOKS,
        "system_permissions": PERMISSION_HOOKS,
        "system_settings": SETTINGS_HOOKS,
    }
)


def hooks_of(collection: str) -> SystemTableHooks:
    """Return the keeper of a collection; that of people's own collections minds nothing."""
    return HOOKS.get(collection, NO_HOOKS)
