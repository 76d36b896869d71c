"""`cms flows`: the same flows from a shell."""

from __future__ import annotations

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


def test_a_rejected_run_is_told_by_the_exit_code(shell: CliRunner, admin: Client) -> None:
    flow = make_flow(admin, "operation", {}, [step("stop", "throw-error", {"message": "No"})])
    result = flows(shell, "run", flow)
    assert result.exit_code == 1
    assert 'The operation "stop" was rejected.' in result.output


@pytest.mark.parametrize(
    "words",
    [
        ("00000000-0000-0000-0000-000000000000",),
        ("no-uuid",),
        ("00000000-0000-0000-0000-000000000000", "--data", "{"),
    ],
)
def test_what_cannot_be_run_is_told_in_a_sentence(shell: CliRunner, words: tuple[str, ...]) -> None:
    result = flows(shell, "run", *words)
    assert result.exit_code != 0
    assert "Error: " in result.output
