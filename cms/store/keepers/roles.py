"""Roles: networks that can be read, parents without a circle, and the last administrator (decisions, section 11)."""

from __future__ import annotations

from collections.abc import Sequence

from cms.access.addresses import network
from cms.query.drafts import Draft
from cms.store.keepers.keeper import Keeper, Wrong, refuse_several, unprocessable
from cms.store.keepers.users import keep_an_admin
from cms.store.statements import statement
from cms.store.store import Fetch, Scene


def _check_name(value: object, scene: Scene) -> None:
    if isinstance(value, str) and not value.strip():
        raise ValueError("it must not be empty")


def _check_networks(value: object, scene: Scene) -> None:
    if not isinstance(value, list):
        raise ValueError("it is a list of addresses and networks")
    faults = []
    for place, entry in enumerate(value):
        try:
            network(entry)
        except ValueError:
            faults.append(Wrong("it is neither an address nor a network such as 10.0.0.0/8", place))
    refuse_several(faults)


def _after(fetch: Fetch, scene: Scene, drafts: Sequence[Draft]) -> None:
    if any("parent" in draft.sent for draft in drafts) and fetch(statement("find_circle_of_roles"), ()):
        raise unprocessable("A role cannot be its own parent, nor a parent's parent")
    keep_registration_low(fetch)
    keep_an_admin(fetch)


def keep_registration_low(fetch: Fetch) -> None:
    """Raise `Refused` UNPROCESSABLE_CONTENT when whoever registers would be an administrator."""
    fetch(statement("lock_accounts"), ())
    if fetch(statement("find_registering_admins"), ()):
        raise unprocessable("The role of public registration cannot be one of administrators")


ROLES = Keeper(closed=True, checks={"name": _check_name, "ip_access": _check_networks}, after=_after)
