"""Calls that wait leave threads to other requests, however many they are."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import pytest

from cms.config import Config
from tests.active_flows import make_flow, runs, step, work
from tests.client import Client
from tests.things import Stage
from tests.waiting import eventually

THREADS = 4
SLEEP_SECONDS = 4
SLEEP = step("wait", "sleep", {"milliseconds": SLEEP_SECONDS * 1000})
BUSY = "Too many runs are waiting; try again later"


@pytest.fixture(scope="module")
def stage_settings(settings: Config) -> Config:
    return replace(settings, web_threads=THREADS)


def outcomes(admin: Client, flow: str, *, calls: int) -> tuple[list[Any], float]:
    """Call a flow many times at once on the threads of a process, and read something after that.

    Return the answers to the calls, and how many seconds the read has taken.
    """
    with ThreadPoolExecutor(THREADS) as threads:
        start = time.monotonic()
        answers = [threads.submit(admin.get, f"/flows/trigger/{flow}") for _ in range(calls)]
        read = threads.submit(admin.get, "/flows", limit=1)
        assert read.result().status == 200
        seconds = time.monotonic() - start
        return [answer.result() for answer in answers], seconds


@pytest.mark.clock
@pytest.mark.parametrize(
    "kind",
    [
        "sleep",
        pytest.param("trigger", marks=pytest.mark.release),
        pytest.param("rejecting", marks=pytest.mark.release),
    ],
)
def test_calls_that_wait_leave_threads_to_other_requests(admin: Client, kind: str) -> None:
    steps: Sequence[Any] = [SLEEP]
    if kind == "trigger":
        inner = make_flow(admin, "operation", {}, [SLEEP])
        steps = [step("inner", "trigger", {"flow": inner})]
    if kind == "rejecting":
        # What follows a rejection is not run when there is no slot.
        steps = [{**SLEEP, "reject": "after"}, step("after", "log", {"message": "a"})]
    flow = make_flow(admin, "webhook", {}, steps)
    answers, seconds = outcomes(admin, flow, calls=16)
    assert seconds < SLEEP_SECONDS
    statuses = Counter(answer.status for answer in answers)
    assert statuses == {200: 2, 503: 14}
    refused = next(answer for answer in answers if answer.status == 503)
    assert refused.codes == ["SERVICE_UNAVAILABLE"]
    assert refused.errors[0]["reason"] == BUSY
    assert refused.headers["retry-after"]
    states = Counter((run["state"], run["reason"]) for run in runs(admin, flow))
    assert states == {("done", None): 2, ("rejected", BUSY): 14}
    short = make_flow(admin, "webhook", {}, [step("wait", "sleep", {"milliseconds": 1})])
    assert admin.get(f"/flows/trigger/{short}").status == 200


@pytest.mark.release
def test_slots_are_free_after_operations_that_fail(admin: Client) -> None:
    fails = step("fails", "exec", {"code": "module.exports = () => { throw new Error('a'); };"})
    flow = make_flow(admin, "webhook", {}, [fails])
    statuses = [admin.get(f"/flows/trigger/{flow}").status for _ in range(THREADS)]
    assert statuses == [422] * THREADS


@pytest.mark.release
def test_quick_flows_and_runs_in_the_background_need_no_slot(
    stage: Stage, admin: Client, settings: Config
) -> None:
    waiting = make_flow(admin, "webhook", {}, [SLEEP])
    quick = make_flow(admin, "webhook", {}, [step("a", "transform", {"json": {"n": 1}})])
    short = step("wait", "sleep", {"milliseconds": 1})
    queued = make_flow(admin, "webhook", {"async": True}, [short])
    refused = make_flow(admin, "webhook", {}, [short])  # while both slots are taken
    with ThreadPoolExecutor(THREADS) as threads:
        calls = [threads.submit(admin.get, f"/flows/trigger/{waiting}") for _ in range(2)]
        eventually(lambda: admin.get(f"/flows/trigger/{refused}").status == 503)
        assert admin.get(f"/flows/trigger/{quick}").data == {"n": 1}
        assert admin.get(f"/flows/trigger/{queued}").status == 204
        work(stage, settings)
        assert [run["state"] for run in runs(admin, queued)] == ["done"]
        assert not any(call.done() for call in calls)
    assert [call.result().status for call in calls] == [200, 200]
