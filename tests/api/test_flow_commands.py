"""`cms flows`: the same flows from a shell."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from cms.cli import cms
from tests.active_flows import make_flow, runs, step
from tests.client import Client
from tests.things import Stage


@pytest.fixture
def shell(stage: Stage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> CliRunner:
    monkeypatch.chdir(tmp_path)
    # By its module: the name in the package is that of the group of commands.
    module = import_module("cms.cli.flows")
    monkeypatch.setattr(module, "start_logging", lambda config: None)
    return CliRunner(env={"DATABASE_URL": stage.dsn, "SECRET": "only-for-tests-" * 3})


def flows(shell: CliRunner, *words: str) -> Result:
    return shell.invoke(cms, ["flows", *words])


def test_flows_are_listed(shell: CliRunner, admin: Client) -> None:
    flow = make_flow(admin, "webhook", {}, [], name="Hello")
    result = flows(shell, "list")
    assert result.exit_code == 0, result.output
    assert f"{flow}  active  webhook  Hello" in result.output


def test_a_flow_is_run_with_its_steps_printed(shell: CliRunner, admin: Client) -> None:
    steps = [step("twice", "transform", {"json": ["{{$trigger.n}}", "{{$trigger.n}}"]})]
    flow = make_flow(admin, "schedule", {"cron": "0 0 1 1 *"}, steps)
    result = flows(shell, "run", flow, "--data", '{"n": 5}')
    assert result.exit_code == 0, result.output
    assert "twice (transform): resolve in" in result.output
    assert "The flow returns [5,5]" in result.output
    assert [run["trigger"] for run in runs(admin, flow)] == ["manual"]


def test_a_rejected_run_is_reported_by_the_exit_code(shell: CliRunner, admin: Client) -> None:
    flow = make_flow(admin, "operation", {}, [step("stop", "throw-error", {"message": "No"})])
    result = flows(shell, "run", flow)
    assert result.exit_code == 1
    assert 'The operation "stop" was rejected.' in result.output


def test_an_inactive_flow_is_run_too(shell: CliRunner, admin: Client) -> None:
    flow = make_flow(admin, "operation", {}, [], status="inactive")
    result = flows(shell, "run", flow, "--data", "[1]")
    assert result.exit_code == 0, result.output
    assert "The flow returns [1]" in result.output


NO_FLOW = "00000000-0000-0000-0000-000000000000"


@pytest.mark.parametrize(
    ("words", "code", "sentence"),
    [
        ((NO_FLOW,), 1, "Error: There is no such flow."),
        (("no-uuid",), 2, "Error: Invalid value for 'ID': 'no-uuid' is not a valid UUID."),
        ((NO_FLOW, "--data", "{"), 2, "Error: Invalid value for --data: It is no JSON: "),
    ],
)
def test_what_cannot_be_run_is_reported_in_a_sentence(
    shell: CliRunner, words: tuple[str, ...], code: int, sentence: str
) -> None:
    result = flows(shell, "run", *words)
    assert (result.exit_code, sentence in result.output) == (code, True), result.output
