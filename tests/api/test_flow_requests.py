"""Flows as programs that know them from elsewhere write and call them."""

from __future__ import annotations

import pytest

from cms.config import Config
from tests.active_flows import make_flow, runs, step, work
from tests.client import Client
from tests.things import Stage, Table


def test_flows_are_written_and_read_many_at_once(admin: Client) -> None:
    made = admin.post(
        "/flows", [{"name": name, "trigger": "manual", "color": "#00ff00"} for name in "ab"]
    ).data
    keys = [flow["id"] for flow in made]
    changed = admin.patch("/flows", {"keys": keys, "data": {"icon": "bolt"}}).data
    assert [flow["icon"] for flow in changed] == ["bolt", "bolt"]
    query = {"filter": {"id": {"_in": keys}}, "fields": ["name"], "sort": ["name"]}
    searched = admin.send("SEARCH", "/flows", {"query": query})
    assert searched.data == [{"name": "a"}, {"name": "b"}]
    assert admin.delete("/flows", keys).status == 204


def test_operations_are_written_and_read_many_at_once(admin: Client) -> None:
    flow = admin.post("/flows", {"name": "A flow", "trigger": "manual"}).data["id"]
    logs = [
        {"key": key, "type": "log", "options": {"message": "m"}, "flow": flow, "position_x": 3}
        for key in ("a", "b")
    ]
    keys = [operation["id"] for operation in admin.post("/operations", logs).data]
    changed = admin.patch("/operations", {"keys": keys, "data": {"position_y": 7}}).data
    assert [(one["position_x"], one["position_y"]) for one in changed] == [(3, 7), (3, 7)]
    query = {"filter": {"flow": {"_eq": flow}}, "fields": ["key"], "sort": ["key"]}
    assert admin.send("SEARCH", "/operations", {"query": query}).data == [
        {"key": "a"},
        {"key": "b"},
    ]
    assert admin.delete("/operations", keys).status == 204


def test_an_object_under_data_is_the_trigger_and_the_id_of_an_operation_the_answer(
    admin: Client,
) -> None:
    steps = [
        step("first", "transform", {"json": {"title": "{{$trigger.data.title}}"}}, resolve="then"),
        step("then", "transform", {"json": "other"}),
    ]
    flow = make_flow(admin, "webhook", {"method": "POST", "async": False}, steps)
    first = admin.get(f"/flows/{flow}").data["operation"]
    assert admin.patch(f"/flows/{flow}", {"options": {"method": "POST", "return": first}}).data
    answer = admin.post(f"/flows/trigger/{flow}", {"data": {"title": "Hello"}})
    assert (answer.status, answer.data) == (200, {"title": "Hello"})


def test_a_query_of_an_operation_counts_from_now(
    stage: Stage, settings: Config, admin: Client
) -> None:
    admin.post(
        "/collections",
        {
            "collection": "visits",
            "schema": {},
            "fields": [
                {"field": "seen", "type": "timestamp"},
                {"field": "by", "type": "string"},
            ],
        },
    )
    copies = [
        step(
            "copy",
            "item-create",
            {
                "collection": "visits",
                "permissions": "$full",
                "emitEvents": False,
                "payload": {"seen": "{{$NOW}}", "by": "{{$accountability.user}}"},
            },
        )
    ]
    options = {"type": "action", "scope": ["items.create"], "collections": ["visits"]}
    event = make_flow(admin, "event", options, copies)
    Table(admin, "visits").add({"seen": "2020-01-01T00:00:00Z"})
    work(stage, settings)
    assert [run["state"] for run in runs(admin, event)] == ["done"]
    query = {"aggregate": {"count": "*"}, "filter": {"seen": {"_gt": "$NOW(-1 hour)"}}}
    steps = [step("recent", "item-read", {"collection": "visits", "query": query})]
    flow = make_flow(admin, "webhook", {"return": "{{recent[0].count}}"}, steps)
    assert admin.get(f"/flows/trigger/{flow}").data == 1


def test_variables_that_nobody_has_allowed_are_out_of_reach(
    admin: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HIDDEN_VALUE", "nobody-may-see-this")
    steps = [step("see", "transform", {"json": ["{{$env.HIDDEN_VALUE}}", "{{$env.SECRET}}"]})]
    flow = make_flow(admin, "webhook", {"return": "$all"}, steps)
    answer = admin.get(f"/flows/trigger/{flow}")
    assert answer.data["see"] == [None, None]
    assert "$env" not in answer.data
    assert "nobody-may-see-this" not in answer.text


def test_the_runs_of_what_is_no_id_are_not_there(admin: Client) -> None:
    answer = admin.get("/flows/urn:uuid:6d82432b-98a5-4064-a153-8f8c8bb1257b/runs")
    assert (answer.status, answer.codes) == (404, ["NOT_FOUND"])


def test_a_webhook_returns_its_trigger_and_its_runs_are_filtered(admin: Client) -> None:
    steps = [step("is_one", "condition", {"filter": {"$trigger": {"query": {"n": {"_eq": "1"}}}}})]
    flow = make_flow(admin, "webhook", {"return": "$trigger"}, steps)
    answer = admin.get(f"/flows/trigger/{flow}", n="1").data
    assert (answer["method"], answer["query"]) == ("GET", {"n": "1"})
    assert admin.get(f"/flows/trigger/{flow}", n="2").status == 422
    for state, number in (("done", "1"), ("rejected", "2")):
        (run,) = admin.get(f"/flows/{flow}/runs", **{"filter[state][_eq]": state}).data
        assert (run["attempt"], run["data"]["query"]) == (1, {"n": number})
        (logged,) = run["steps"]
        assert logged["date_started"] >= run["date_started"]
        assert logged["milliseconds"] >= 0
