"""Callers: their rights, and paths from them, looked up for rules that are tried on payloads."""

from __future__ import annotations

from cms.items.write.complete.caller_values import caller_values
from cms.query.language.ast import Caller, CallerValue
from cms.query.rules.payload_rules import parse_rule
from cms.query.rules.resolved_rules import resolve_rule
from cms.query.rules.validation import RuleContext, failures
from cms.schema.names import FieldName
from cms.store.identity import ANONYMOUS, Identity
from tests.client import Client


def test_a_path_leads_through_relations_of_either_kind(api: Client) -> None:
    user = api.get("/users/me?fields=id,email,role").data
    store = api.app.store
    identity = Identity(user=user["id"])
    rule = resolve_rule(
        parse_rule(
            {
                "owner": {"_eq": "$CURRENT_USER.role.name"},
                "mail": {"_in": "$CURRENT_ROLE.users.email"},
                "by": "$CURRENT_USER",
            }
        )
    )
    for attempt in store.reads(identity):
        with attempt as context:
            caller_facts = caller_values(store, context, rule.caller_paths)
    assert caller_facts == {
        CallerValue(Caller.USER, (FieldName("role"), FieldName("name"))): ("Administrator",),
        CallerValue(Caller.ROLE, (FieldName("users"), FieldName("email"))): (user["email"],),
    }
    under = RuleContext(user=user["id"], role=user["role"], caller_values=caller_facts)
    assert (
        failures(rule, {"owner": "Administrator", "mail": user["email"], "by": user["id"]}, under)
        == []
    )
    assert len(failures(rule, {"owner": "x", "mail": "y", "by": "z"}, under)) == 3


def test_nobody_has_no_values(api: Client) -> None:
    store = api.app.store
    path = CallerValue(Caller.USER, (FieldName("email"),))
    for attempt in store.reads(ANONYMOUS):
        with attempt as context:
            caller_facts = caller_values(store, context, [path])
    assert caller_facts == {path: ()}


def test_the_service_and_nobody_do_not_share_their_rights(api: Client) -> None:
    def is_admin(identity: Identity) -> bool:
        for attempt in api.app.store.reads(identity):
            with attempt as context:
                answer = context.actor.policy.is_admin
        return answer

    for _ in range(2):  # each is known to the snapshot when the other is looked up
        assert not is_admin(ANONYMOUS)
        assert is_admin(Identity(is_service=True))
