"""Cached answers of webhooks: only where a run would have answered the same."""

from __future__ import annotations

from dataclasses import replace

import pytest

from cms.config import Config
from tests.active_flows import Json, make_flow, runs, step
from tests.client import Client
from tests.members import grant, may, member_of, new_role
from tests.things import Stage, field

ANYBODY = may("system_flows", "id")


@pytest.fixture(scope="module")
def stage_settings(settings: Config) -> Config:
    return replace(settings, ip_trust_proxy=1)


@pytest.fixture(scope="module", autouse=True)
def public(stage: Stage) -> None:
    """Let everybody call flows."""
    grant(stage, None, [ANYBODY])


def cached(admin: Client, returns: object, steps: list[Json] | None = None) -> str:
    return make_flow(admin, "webhook", {"cacheEnabled": True, "return": returns}, steps or [])


@pytest.mark.parametrize(
    ("returns", "steps"),
    [
        ("{{$trigger.headers.x-site}}", []),
        ("$trigger", []),
        ("$last", []),
        ("$all", [step("one", "transform", {"json": 1})]),
        (None, [step("one", "transform", {"json": "{{$last}}"})]),
        (None, [step("one", "transform", {"json": {"deep": ["a {{$trigger.headers.x-site}}"]}})]),
        (
            "tried",
            [
                step(
                    "check",
                    "condition",
                    {"filter": {"$trigger": {"headers": {"x-site": {"_eq": "one"}}}}},
                    reject="tried",
                ),
                step("tried", "transform", {"json": "another site"}),
            ],
        ),
    ],
)
def test_callers_with_other_headers_have_answers_of_their_own(
    stage: Stage, admin: Client, returns: object, steps: list[Json]
) -> None:
    flow = cached(admin, returns, steps)
    path = f"/flows/trigger/{flow}"
    first = stage.anonymous.send("GET", path, **{"X-Site": "one"})
    second = stage.anonymous.send("GET", path, **{"X-Site": "two"})
    assert (first.status, second.status) == (200, 200)
    assert len(runs(admin, flow)) == 2
    again = stage.anonymous.send("GET", path, **{"X-Site": "one"})
    assert (again.data, len(runs(admin, flow))) == (first.data, 2)


def test_an_answer_with_an_address_is_for_callers_from_there(stage: Stage, admin: Client) -> None:
    flow = cached(admin, "$accountability.ip")
    for address in ("192.0.2.1", "192.0.2.2", "192.0.2.1"):
        forwarded = {"X-Forwarded-For": address}
        answer = stage.anonymous.send("GET", f"/flows/trigger/{flow}", **forwarded)
        assert answer.data == address
    assert len(runs(admin, flow)) == 2


def test_an_answer_that_cannot_show_its_caller_is_everybodys(stage: Stage, admin: Client) -> None:
    steps = [
        step("first", "transform", {"json": "{{$trigger.query.n}}"}, resolve="second"),
        step("second", "transform", {"json": ["{{$last}}", "{{first}}", "{{$flow.id}}"]}),
    ]
    flow = cached(admin, None, steps)
    for site in ("one", "two"):
        path = f"/flows/trigger/{flow}?n=1"
        assert stage.anonymous.send("GET", path, **{"X-Site": site}).data == ["1", "1", flow]
    assert len(runs(admin, flow)) == 1


def test_an_answer_ends_with_the_rights_that_it_was_made_with(stage: Stage, admin: Client) -> None:
    pages = stage.empty_table(field("title", "string"))
    pages.add({"title": "a"})
    role = new_role(stage, ANYBODY, may(pages.name))
    caller = member_of(stage, role)
    read = step("read", "item-read", {"collection": pages.name, "query": {"fields": ["title"]}})
    flow = cached(admin, None, [read])
    assert caller.get(f"/flows/trigger/{flow}").data == [{"title": "a"}]
    rule = {"filter": {"role": {"_eq": role}, "collection": {"_eq": pages.name}}}
    assert admin.send("DELETE", "/permissions", {"query": rule}).status == 204
    assert caller.get(f"/flows/trigger/{flow}").status == 422
