"""Secrets of runs: masked in the logs of all runs that one call has caused."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from cms.config import Config
from tests.active_flows import make_flow, runs, step, work
from tests.client import Client
from tests.members import may, member
from tests.things import Stage, field

pytestmark = pytest.mark.usefixtures("flows_of_the_test")


@pytest.fixture(scope="module")
def stage_settings(settings: Config) -> Config:
    return replace(settings, flows_env={"API_KEY": "env-hunter"})


def test_inner_and_outer_runs_mask_what_either_has_learnt(admin: Client) -> None:
    login = step("login", "transform", {"json": {"access_token": "inner-hunter"}}, resolve="out")
    out = step("out", "transform", {"json": ["{{login.access_token}}", "{{$trigger.note}}"]})
    inner = make_flow(admin, "operation", {}, [login, out])
    payload = {"note": "{{$trigger.body.password}} {{$env.API_KEY}}"}
    steps = [
        step("call", "trigger", {"flow": inner, "payload": payload}, resolve="tell"),
        step("tell", "log", {"message": "got {{call[0]}} and {{call[1]}}"}),
    ]
    outer = make_flow(admin, "webhook", {"method": "POST", "return": "call"}, steps)
    answer = admin.post(f"/flows/trigger/{outer}", {"password": "outer-hunter"})
    assert answer.data == ["inner-hunter", "outer-hunter env-hunter"]
    for flow in (inner, outer):
        (run,) = runs(admin, flow)
        assert "hunter" not in json.dumps(run)
    assert run["steps"][1]["log"] == ["got ********** and ********** **********"]


def test_a_flood_of_secrets_hides_values_and_not_the_run(admin: Client) -> None:
    flow = make_flow(admin, "webhook", {"method": "POST"}, [step("tell", "log", {"message": "x"})])
    body = {f"token{number}": f"secret {number}" for number in range(10_000)}
    assert admin.post(f"/flows/trigger/{flow}", body).status == 200
    (run,) = runs(admin, flow)
    (entry,) = run["steps"]
    assert (run["state"], run["data"]) == ("done", "**********")
    assert (entry["key"], entry["options"], entry["log"]) == ("tell", "**********", ["**********"])


def test_tokens_and_their_secrets_are_masked(admin: Client) -> None:
    options = {"operation": "sign", "payload": {"id": 1}, "secret": "s" * 40}
    steps = [
        step("sign", "json-web-token", options, resolve="tell"),
        step("tell", "transform", {"json": {"link": "https://example.com/#{{sign}}"}}),
    ]
    flow = make_flow(admin, "webhook", {"method": "POST"}, steps)
    link = admin.post(f"/flows/trigger/{flow}", {}).data["link"]
    token = link.partition("#")[2]
    text = json.dumps(runs(admin, flow))
    assert token not in text
    assert "s" * 40 not in text


def test_a_user_who_was_suspended_meanwhile_does_nothing_more(
    stage: Stage, stage_settings: Config, admin: Client
) -> None:
    pages = stage.empty_table(field("title", "string"))
    caller = member(stage, may("system_flows"), may(pages.name, action="create"))
    options = {"collection": pages.name, "payload": {"title": "new"}}
    trigger = {"method": "POST", "async": True}
    flow = make_flow(admin, "webhook", trigger, [step("add", "item-create", options)])
    users = admin.get("/users", sort="-id", **{"filter[role][_nnull]": True}).data
    for suspended, count in ((False, 1), (True, 1)):
        assert caller.post(f"/flows/trigger/{flow}", {}).status == 204
        if suspended:
            keys = [entry["id"] for entry in users if not entry["email"].startswith("admin")]
            change = {"keys": keys, "data": {"status": "suspended"}}
            assert admin.patch("/users", change).status == 200
        work(stage, stage_settings)
        assert len(pages.column("title")) == count
    assert [run["state"] for run in runs(admin, flow)] == ["done", "rejected"]
