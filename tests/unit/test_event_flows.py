"""Which flows wait for which events of which collections."""

from __future__ import annotations

from typing import Any

from cms.store.event_flows import NO_EVENT_FLOWS, event_flows


def row(identifier: str, *scope: str, **options: Any) -> dict[str, Any]:
    return {"id": identifier, "options": {"type": "action", "scope": list(scope), **options}}


def test_without_flows_no_collection_has_any() -> None:
    assert event_flows(None) == NO_EVENT_FLOWS
    assert not NO_EVENT_FLOWS.of("books").by_event


def test_flows_of_named_and_of_all_collections_follow_the_order_of_their_creation() -> None:
    events = event_flows(
        [
            row("first", "items.create", collections=["books"]),
            row("second", "items.create"),
            row("third", "items.create", "items.delete", collections=["books", "people"]),
        ]
    )
    assert events.of("books").actions("create") == ("first", "second", "third")
    assert events.of("people").actions("create") == ("second", "third")
    assert events.of("people").actions("delete") == ("third",)
    assert events.of("shops").actions("create") == ("second",)
    assert events.of("shops").actions("delete") == ()


def test_flows_of_all_collections_wait_for_none_of_the_system() -> None:
    events = event_flows([row("any", "items.update"), row("users", "users.update")])
    assert events.of("system_users").actions("update") == ("users",)
    assert not events.of("system_roles").by_event
    assert events.of("books").actions("update") == ("any",)


def test_filters_and_actions_are_apart() -> None:
    events = event_flows([row("filter", "items.create", type="filter", collections=["books"])])
    assert events.of("books").filters("create") == ("filter",)
    assert events.of("books").actions("create") == ()
    assert not events.of("people").by_event


def test_a_flow_that_names_an_event_twice_waits_for_it_once() -> None:
    events = event_flows([row("one", "items.create", "items.create", collections=["books"] * 2)])
    assert events.of("books").actions("create") == ("one",)


def test_logins_are_no_writes_of_items() -> None:
    assert event_flows([row("one", "auth.login")]) == NO_EVENT_FLOWS
