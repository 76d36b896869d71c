"""Calls that only administrators may make, and that read nothing else of the database."""

from __future__ import annotations

from cms.store.identity import Identity
from cms.store.store import Store, require_admin


def require_administrator(store: Store, identity: Identity) -> None:
    """Raise `Refused` FORBIDDEN unless the caller is an administrator."""
    store.run_unversioned_read(identity, lambda context: require_admin(context.actor))
