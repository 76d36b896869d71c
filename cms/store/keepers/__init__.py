"""What the service minds in system collections, however a write reaches them (decisions, sections 9, 11, 13)."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from cms.store.keepers.keeper import Keeper
from cms.store.keepers.permissions import PERMISSIONS
from cms.store.keepers.roles import ROLES
from cms.store.keepers.settings import SETTINGS
from cms.store.keepers.users import USERS

NOTHING = Keeper()

KEEPERS: Mapping[str, Keeper] = MappingProxyType(
    {
        "system_users": USERS,
        "system_roles": ROLES,
        "system_permissions": PERMISSIONS,
        "system_settings": SETTINGS,
    }
)


def keeper_of(collection: str) -> Keeper:
    """Return the keeper of a collection; that of people's own collections minds nothing."""
    return KEEPERS.get(collection, NOTHING)
