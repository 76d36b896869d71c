"""Runs of flows: which operations run, with which values, and what is left in the end."""

from __future__ import annotations

from collections.abc import Mapping
from types import SimpleNamespace
from typing import cast

import pytest

from cms.flows.definition.flow import FlowDefinition, FlowOperation, Graph
from cms.flows.engine import Outcome, run_program
from cms.flows.operations import OPERATIONS
from cms.flows.program import compile_flow
from cms.flows.run import Run, RunLimits, Services
from cms.store.identity import ANONYMOUS

SECRET = "a secret of at least thirty-two bytes"


def operation(key: str, kind: str, options: Mapping[str, object], **ends: str) -> FlowOperation:
    return FlowOperation(key, key, kind, options, ends.get("resolve"), ends.get("reject"))


def run(*operations: FlowOperation, trigger: object = None) -> Outcome:
    """Run operations, the first one first."""
    graph = Graph({entry.id: entry for entry in operations}, operations[0].id)
    program = compile_flow(FlowDefinition("flow", "webhook", {}, graph), OPERATIONS)
    return run_program(program, new_run(trigger))


def new_run(trigger: object) -> Run:
    # These operations need nothing of the process but its slots, as little as a worker's do.
    services = cast(Services, SimpleNamespace(wait_slots=None))
    return Run(services, "flow", ANONYMOUS, {"$trigger": trigger})


def keys(outcome: Outcome) -> list[tuple[str, str]]:
    return [(step.key, step.status) for step in outcome.steps]


def test_each_operation_sees_the_results_of_those_before_it() -> None:
    outcome = run(
        operation("first", "transform", {"json": {"n": "{{$trigger.n}}"}}, resolve="second"),
        operation("second", "transform", {"json": ["{{$last.n}}", "{{first}}"]}),
        trigger={"n": 5},
    )
    assert outcome.values["second"] == [5, {"n": 5}]
    assert outcome.values["$last"] == [5, {"n": 5}]
    assert outcome.rejected is None


@pytest.mark.parametrize(("price", "last"), [(10, "dear"), (1, "cheap")])
def test_a_condition_leads_to_one_of_two_ways(price: int, last: str) -> None:
    rule = {"$trigger": {"body": {"price": {"_gt": 5}}}}
    outcome = run(
        operation("is_dear", "condition", {"filter": rule}, resolve="dear", reject="cheap"),
        operation("dear", "transform", {"json": "dear"}),
        operation("cheap", "transform", {"json": "cheap"}),
        trigger={"body": {"price": price}},
    )
    assert outcome.values["$last"] == last
    assert outcome.rejected is None


def test_a_failed_condition_lists_the_failed_tests() -> None:
    rule = {"_and": [{"$trigger": {"a": {"_eq": 1}}}, {"$trigger": {"b": {"_nnull": True}}}]}
    outcome = run(operation("check", "condition", {"filter": rule}), trigger={"a": 2})
    assert outcome.rejected_key == "check"
    failures = outcome.values["check"]
    assert isinstance(failures, list)
    assert [failure["path"] for failure in failures] == [["$trigger", "a"], ["$trigger", "b"]]


def test_a_rejection_ends_the_run_where_nothing_follows_it() -> None:
    outcome = run(
        operation("stop", "throw-error", {"code": "NO", "status": 418}, resolve="never"),
        operation("never", "transform", {"json": 1}),
    )
    assert keys(outcome) == [("stop", "reject")]
    assert outcome.rejected is not None
    assert outcome.rejected.result == {
        "code": "NO",
        "status": 418,
        "message": "The flow was rejected.",
    }


def test_a_rejection_that_is_followed_does_not_reject_the_run() -> None:
    outcome = run(
        operation("stop", "throw-error", {"code": "NO"}, reject="mend"),
        operation("mend", "transform", {"json": "{{$last.code}} was mended"}),
    )
    assert keys(outcome) == [("stop", "reject"), ("mend", "resolve")]
    assert outcome.rejected is None
    assert outcome.values["$last"] == "NO was mended"


def test_options_that_templates_have_made_wrong_reject() -> None:
    outcome = run(operation("wait", "sleep", {"milliseconds": "{{$trigger}}"}), trigger="long")
    assert keys(outcome) == [("wait", "reject")]
    assert outcome.values["wait"] == {
        "errors": [{"message": "it is a whole number.", "path": ["milliseconds"]}]
    }


def test_a_flow_without_operations_comes_to_nothing() -> None:
    program = compile_flow(FlowDefinition("flow", "webhook", {}, Graph({})), OPERATIONS)
    outcome = run_program(program, new_run(1))
    assert (outcome.steps, outcome.rejected) == ((), None)


def test_tokens_are_signed_and_verified() -> None:
    token = {"operation": "sign", "payload": {"sub": "a", "iat": 1}, "secret": SECRET}
    verify = {"operation": "verify", "token": "{{sign}}", "secret": SECRET}
    outcome = run(
        operation("sign", "json-web-token", token, resolve="verify"),
        operation("verify", "json-web-token", verify),
    )
    assert outcome.values["verify"] == {"sub": "a", "iat": 1}


@pytest.mark.parametrize(
    "options",
    [
        {"secret": "another secret of at least thirty-two bytes"},
        {"secret": SECRET, "options": {"algorithms": ["none"]}},
        {"secret": SECRET, "options": {"algorithms": ["RS256"]}},
        {},
    ],
)
def test_a_token_that_does_not_verify_rejects_without_a_secret(options: dict[str, object]) -> None:
    token = {"operation": "sign", "payload": {"sub": "a"}, "secret": SECRET}
    verify = {"operation": "verify", "token": "{{sign}}", **options}
    outcome = run(
        operation("sign", "json-web-token", token, resolve="verify"),
        operation("verify", "json-web-token", verify),
    )
    assert keys(outcome)[-1] == ("verify", "reject")
    assert "secret of at least" not in str(outcome.values["verify"])


def test_an_operation_that_is_not_the_flows_ends_the_run_with_a_reason() -> None:
    outcome = run(operation("first", "transform", {"json": 1}, resolve="elsewhere"))
    assert keys(outcome) == [("first", "resolve")]
    assert outcome.rejected is not None
    assert outcome.rejected.reason == "The flow has no operation elsewhere."


def test_no_operation_begins_after_the_deadline_of_a_run() -> None:
    graph = Graph({"late": operation("late", "transform", {"json": 1})}, "late")
    program = compile_flow(FlowDefinition("flow", "webhook", {}, graph), OPERATIONS)
    late = new_run(None)
    late.limits = RunLimits(0)
    outcome = run_program(program, late)
    assert keys(outcome) == []
    assert outcome.rejected is not None
    assert outcome.rejected.reason == "The flow takes longer than 0 seconds."


def test_a_sleep_beyond_the_deadline_rejects_at_once() -> None:
    graph = Graph({"wait": operation("wait", "sleep", {"milliseconds": 3_600_000})}, "wait")
    program = compile_flow(FlowDefinition("flow", "webhook", {}, graph), OPERATIONS)
    waiting = new_run(None)
    waiting.limits = RunLimits(60)
    outcome = run_program(program, waiting)
    assert outcome.rejected is not None
    assert outcome.rejected.reason == "The flow takes longer than 60 seconds."


@pytest.mark.quick(1)
@pytest.mark.parametrize("doubled", ["{{$last}}{{$last}}", ["{{$last}}", "{{$last}}"]])
def test_values_that_grow_with_each_operation_reject_in_time(doubled: object) -> None:
    steps = [
        operation(str(number), "transform", {"json": doubled}, resolve=str(number + 1))
        for number in range(40)
    ]
    first = operation("first", "transform", {"json": "x"}, resolve="0")
    outcome = run(first, *steps, operation("40", "log", {"message": "done"}))
    assert outcome.rejected
    assert "16 MB" in str(outcome.rejected.result)


def test_an_option_that_is_null_counts_as_not_given_unless_it_is_a_value() -> None:
    steps = (
        operation("read", "item-read", {"collection": "pages", "key": None}),
        operation("other", "trigger", {"flow": None, "payload": None}),
    )
    graph = Graph({entry.id: entry for entry in steps}, "read")
    program = compile_flow(FlowDefinition("flow", "webhook", {}, graph), OPERATIONS)
    options = [program.steps[key].options.render({}) for key in ("read", "other")]
    assert options == [{"collection": "pages"}, {"payload": None}]
