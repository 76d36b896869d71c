"""One execution of a flow: its values before, its result after, and what its log keeps."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, NamedTuple

from cms import jsontext
from cms.errors import Problem, Refused
from cms.flows.engine import Outcome, StepLog, run_program
from cms.flows.program import Program
from cms.flows.redaction import Secrets
from cms.flows.run import FlowRunner, OpenTransaction, Rejected, Run, Services
from cms.store.identity import ANONYMOUS, ClientInfo, Identity

MAX_DEPTH = 10
"""How many runs in a row may each cause the next one."""

Accountability = Mapping[str, str | None] | None
"""User, role and address of whoever caused a run; None is the service itself."""


class Cause(NamedTuple):
    """What causes a run: the kind of trigger, what `$trigger` stands for, and who is behind it."""

    trigger: str
    data: object
    accountability: Accountability
    depth: int = 0

    @property
    def identity(self) -> Identity:
        """The caller with the rights that it has now."""
        if self.accountability is None:
            return Identity(is_service=True)
        client = ClientInfo(self.accountability.get("ip"))
        user = self.accountability.get("user")
        role = self.accountability.get("role")
        if user:
            return Identity(user=user, client=client)
        return Identity(role=role, client=client) if role else ANONYMOUS.with_client(client)


class Attempt(NamedTuple):
    """Which attempt at a run it is, counted from 1, and what it is made in.

    `run_flow` runs the flows that operations trigger; `transaction` is that of a filter flow; `run`
    is the id of a run that may have several attempts.
    """

    run_flow: FlowRunner
    number: int = 1
    transaction: OpenTransaction | None = None
    run: str | None = None


class RunLog(NamedTuple):
    """What is kept of a run, as JSON: its data, its steps, and its last result."""

    data: str | None = None
    steps: str | None = None
    result: str | None = None


NO_LOG = RunLog()


class Execution(NamedTuple):
    """A run that has come to its end."""

    program: Program
    cause: Cause
    run: Run
    outcome: Outcome
    began: datetime

    @property
    def result(self) -> object:
        """What the run returns, by the option `return` of its flow."""
        returns = self.program.returns
        values = self.outcome.values
        if isinstance(returns, str):
            return {name: value for name, value in values.items() if name != "$env"}
        return returns.render(values)

    @property
    def state(self) -> str:
        return "rejected" if self.outcome.rejected else "done"

    @property
    def reason(self) -> str | None:
        """Why the run was rejected, for its log."""
        if self.outcome.rejected is None:
            return None
        return f'The operation "{self.outcome.rejected_key}" was rejected.'

    def log(self) -> RunLog:
        """Return what the log of the run keeps, without secrets."""
        secrets = self.run.secrets
        return RunLog(
            as_json(secrets.masked(self.cause.data)),
            as_json([_step_entry(step, secrets) for step in self.outcome.steps]),
            as_json(secrets.masked(self.outcome.values.get("$last"))),
        )


def execute(
    services: Services,
    program: Program,
    cause: Cause,
    *,
    identity: Identity | None = None,
    attempt: Attempt,
) -> Execution:
    """Run a flow to its end, with what its operations reject; other errors are raised.

    `identity` is the caller, where it is there; otherwise it is the one that the cause names.
    """
    began = datetime.now(UTC)
    run = Run(
        services,
        program.flow,
        identity or cause.identity,
        _values(services, program, cause, attempt=attempt.number),
        attempt.number,
        cause.depth,
        attempt.run,
        attempt.transaction,
        attempt.run_flow,
    )
    for variable in services.config.flows_env.values():
        run.secrets.add(variable)
    run.secrets.collect(cause.data)
    return Execution(program, cause, run, run_program(program, run), began)


def _values(services: Services, program: Program, cause: Cause, *, attempt: int) -> dict[str, Any]:
    return {
        "$trigger": cause.data,
        "$last": cause.data,
        "$accountability": cause.accountability,
        "$flow": {"id": program.flow, "attempt": attempt},
        "$env": dict(services.config.flows_env),
        "$NOW": datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z"),
    }


def refusal_of(execution: Execution) -> Refused:
    """Return the answer to a caller whose run was rejected.

    It is the error of a `throw-error`, else it names the operation and nothing more.
    """
    rejected = execution.outcome.rejected
    assert rejected
    last = execution.outcome.steps[-1]
    if last.type == "throw-error":
        return Refused(_thrown_problem(rejected))
    key = execution.outcome.rejected_key
    reason = f'The flow was rejected by its operation "{key}".'
    return Refused(Problem("UNPROCESSABLE_CONTENT", reason, {"operation": key}))


def _thrown_problem(rejected: Rejected) -> Problem:
    error: Any = rejected.result
    if "errors" in error:  # its own options were wrong
        return Problem("UNPROCESSABLE_CONTENT", "The flow was rejected.")
    return Problem(str(error["code"]), str(error["message"]), own_status=error["status"])


def _step_entry(step: StepLog, secrets: Secrets) -> dict[str, object]:
    return {
        "operation": step.operation,
        "key": step.key,
        "type": step.type,
        "status": step.status,
        "options": secrets.masked(step.options),
        "result": secrets.masked(step.result),
        "log": [secrets.masked(line) for line in step.lines],
        "date_started": step.began.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
        "milliseconds": step.milliseconds,
    }


def as_json(value: object) -> str:
    return jsontext.dumps(value).decode()
