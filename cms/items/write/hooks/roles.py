"""Hooks of roles: valid networks, no cycle of parents, always an active administrator."""

from __future__ import annotations

from collections.abc import Sequence

from cms.access.ip_addresses import network
from cms.database.connections import Fetch
from cms.database.statements import statement
from cms.items.write.hooks.users import require_active_admin
from cms.store.context import RequestContext
from cms.store.table_hooks import HookedRow, InvalidPart, TableHooks, raise_errors, unprocessable


def _check_name(value: object, context: RequestContext) -> None:
    if isinstance(value, str) and not value.strip():
        raise ValueError("it must not be empty")


def _check_networks(value: object, context: RequestContext) -> None:
    if not isinstance(value, list):
        raise ValueError("it is a list of addresses and networks")
    errors = []
    for index, entry in enumerate(value):
        try:
            network(entry)
        except ValueError:
            errors.append(
                InvalidPart("it is neither an address nor a network such as 10.0.0.0/8", index)
            )
    raise_errors(errors)


def _after(fetch: Fetch, context: RequestContext, rows: Sequence[HookedRow]) -> None:
    changes_parents = any("parent" in row.sent for row in rows)
    # Only a new parent can close a cycle.
    if changes_parents and fetch(statement("find_role_cycle"), ()):
        raise unprocessable("A role cannot be its own parent, nor a parent's parent")
    require_plain_registration_role(fetch)
    # A role that loses admin_access, or admits fewer addresses, may have been that of the last
    # administrator.
    require_active_admin(fetch, context)


def require_plain_registration_role(fetch: Fetch) -> None:
    """Raise `Refused` UNPROCESSABLE_CONTENT if users who register would be administrators."""
    # A role and the settings that name it may change at once: such writes take turns.
    fetch(statement("lock_accounts"), ())
    if fetch(statement("find_registering_admins"), ()):
        raise unprocessable("The role of public registration cannot be one of administrators")


ROLE_HOOKS = TableHooks(
    is_admin_only=True, checks={"name": _check_name, "ip_access": _check_networks}, after=_after
)
