"""What the service demands of writes of its own tables, however a write reaches them."""

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
    """Return the hooks of a collection; collections of users have none."""
    return HOOKS.get(collection, NO_HOOKS)
