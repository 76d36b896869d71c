"""Paths from the caller, looked up for rules that are tried on payloads."""

from __future__ import annotations

from cms.query.ast import Current, Name
from cms.query.validation import Given, failures, parse_rule, paths_of
from cms.store.callers import values_of
from cms.store.store import ANONYMOUS, Identity
from tests.client import Client


def test_a_path_leads_through_relations_of_either_kind(api: Client) -> None:
    user = api.get("/users/me?fields=id,email,role").data
    store, identity = api.app.store, Identity(user=user["id"])
    rule = parse_rule(
        {
            "owner": {"_eq": "$CURRENT_USER.role.name"},
            "mail": {"_in": "$CURRENT_ROLE.users.email"},
            "by": "$CURRENT_USER",
        }
    )
    found = store.reading(identity, lambda scene: values_of(store, scene, store.database.fetch, paths_of(rule)))
    assert found == {
        Current("CURRENT_USER", (Name("role"), Name("name"))): ("Administrator",),
        Current("CURRENT_ROLE", (Name("users"), Name("email"))): (user["email"],),
    }
    under = Given(user=user["id"], role=user["role"], known=found)
    assert failures(rule, {"owner": "Administrator", "mail": user["email"], "by": user["id"]}, under) == []
    assert len(failures(rule, {"owner": "x", "mail": "y", "by": "z"}, under)) == 3


def test_nobody_has_no_values(api: Client) -> None:
    store, path = api.app.store, Current("CURRENT_USER", (Name("email"),))
    found = store.reading(ANONYMOUS, lambda scene: values_of(store, scene, store.database.fetch, [path]))
    assert found == {path: ()}
