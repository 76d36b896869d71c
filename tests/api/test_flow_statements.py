"""Runs of flows take so many statements, however many operations they have."""

from __future__ import annotations

from typing import Any

import pytest

from cms.config import Config
from tests.active_flows import make_flow, runs, step, work
from tests.client import Client
from tests.statements import counted
from tests.things import Stage

MAX_CALL = 3
"""Who calls with the flow, and the log; the first of them also compares the counters."""
RUNS = 11
OF_RUN = 2
"""Its beginning and its end; procrastinate's own are on a connection apart."""
OF_WORKER = 10
"""What a worker loads once for all its runs."""


def transforms(number: int) -> list[dict[str, Any]]:
    return [
        step(f"s{one}", "transform", {"json": "{{$last}}"}, resolve=f"s{one + 1}")
        for one in range(number)
    ] + [step(f"s{number}", "transform", {"json": 1})]


def test_a_call_takes_as_many_statements_with_forty_operations_as_with_two(
    admin: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    counts = []
    for number in (1, 39):
        flow = make_flow(admin, "webhook", {}, transforms(number))
        assert admin.get(f"/flows/trigger/{flow}").data == 1  # loads the flow
        with counted(monkeypatch) as seen:
            assert admin.get(f"/flows/trigger/{flow}").data == 1
        counts.append(len(seen))
    assert counts[0] == counts[1] <= MAX_CALL


@pytest.mark.release
def test_a_run_in_the_background_takes_as_many_with_forty_operations_as_with_two(
    stage: Stage, settings: Config, admin: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in (1, 39):
        flow = make_flow(admin, "webhook", {"async": True}, transforms(number))
        for _ in range(RUNS):
            assert admin.get(f"/flows/trigger/{flow}").status == 204
        with counted(monkeypatch, of_all_threads=True) as seen:
            work(stage, settings)
        assert [run["state"] for run in runs(admin, flow)] == ["done"] * RUNS
        assert sum("system_flow_runs" in text for text in seen) == RUNS * OF_RUN
        assert len(seen) <= RUNS * OF_RUN + OF_WORKER
