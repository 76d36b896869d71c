"""One execution of a flow: its values before, its result after, and its log."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, NamedTuple

from cms.database.connections import Fetch
from cms.database.statements import statement
from cms.errors import UNEXPECTED_ERROR, Problem, Refused, unavailable
from cms.flows.engine import Outcome, run_program
from cms.flows.program import Program, program_of
from cms.flows.redaction import Secrets
from cms.flows.run import (
    INNER_RUNS_SPENT,
    ProcessBusy,
    Rejected,
    Run,
    RunContext,
    Services,
)
from cms.flows.run_log import NO_LOG, RunLog, as_json, run_log, utc_text
from cms.schema.types.date_times import present_moment
from cms.store.identity import ANONYMOUS, ClientInfo, Identity
from cms.store.snapshot import Snapshot

MAX_DEPTH = 10
"""How many runs in a row may each cause the next one."""

LOOP = f"{MAX_DEPTH} runs in a row have each caused the next one; the flows may form a loop."

RunAccountability = Mapping[str, str | None] | None
"""User, role and address of the caller who caused a run; None is the service itself."""


class Cause(NamedTuple):
    """The cause of a run: the kind of trigger, the value of `$trigger`, and the caller."""

    trigger: str
    data: object
    accountability: RunAccountability
    depth: int = 0

    @property
    def identity(self) -> Identity:
        """The caller with the rights that it has now."""
        if self.accountability is None:
            return Identity(is_service=True)
        client = ClientInfo(self.accountability.get("ip"))
        user = self.accountability.get("user")
        role = self.accountability.get("role")
        # Without the stored role: the user has the role of the moment in which the run begins.
        if user:
            return Identity(user=user, client=client)
        # A role without a user: of a share, or of an operation with the `permissions` of a role.
        if role:
            return Identity(role=role, client=client)
        return ANONYMOUS.with_client(client)


class Execution(NamedTuple):
    """A run that has come to its end."""

    program: Program
    cause: Cause
    run: Run
    outcome: Outcome
    began: datetime

    @property
    def result(self) -> object:
        """The value that the run returns, by the option `return` of its flow."""
        returns = self.program.returns
        values = self.outcome.values
        if isinstance(returns, str):
            # `$all`: everything but the environment, which callers must not see.
            return {name: value for name, value in values.items() if name != "$env"}
        return returns.render(values)

    @property
    def state(self) -> str:
        return "rejected" if self.outcome.rejected else "done"

    @property
    def reason(self) -> str | None:
        """Why the run was rejected, for its log."""
        rejected = self.outcome.rejected
        if rejected is None:
            return None
        return rejected.reason or f'The operation "{self.outcome.rejected_key}" was rejected.'

    def log(self) -> RunLog:
        """Return the log of the run, as far as the accountability of its flow keeps it."""
        if self.program.definition.accountability != "all":
            return NO_LOG
        result = self.outcome.values.get("$last")
        return run_log(self.cause.data, self.outcome.steps, result, self.run.secrets)


def run_now(
    services: Services,
    program: Program,
    cause: Cause,
    *,
    context: RunContext,
    identity: Identity | None = None,
) -> Execution:
    """Run a flow while its caller waits, and log the run.

    In a transaction the log is a part of it: a refused write leaves no log.
    """
    began = present_moment()
    try:
        execution = execute(services, program, cause, context, identity)
    except Exception:
        # A transaction whose statement has failed takes no other one.
        if context.transaction is None:
            ended = _EndedRun("failed", began, NO_LOG, UNEXPECTED_ERROR)
            _insert(services.store.database.fetch_primary, program, cause, ended)
        raise
    ended = _EndedRun(execution.state, execution.began, execution.log(), execution.reason)
    # The writes of the run are committed by now, and a crash before this line would leave no log
    # either. In a transaction it would also keep the write from waiting for the disk.
    is_quick = context.transaction is None and ended.state == "done"
    _insert(execution.run.fetch, program, cause, ended, is_quick=is_quick)
    return execution


def run_inner_flow(run: Run, flow: str, payload: object) -> object:
    """Run a flow as a part of a run, under the same caller; return its result.

    Raises `Rejected` for a flow that operations do not run, and where that flow is rejected.
    """
    if run.depth >= MAX_DEPTH:
        raise Rejected({"message": LOOP})
    if not run.limits.inner_runs_left:
        raise Rejected({"message": f"{INNER_RUNS_SPENT}."})
    # Shared by all runs inside of one run: ten levels of loops of ten would otherwise be ten
    # billion.
    run.limits.inner_runs_left -= 1
    # In a transaction, with the changes that it has made.
    snapshot = run.transaction.current_snapshot() if run.transaction else run.snapshot
    assert snapshot
    program = program_of(run.services, snapshot, flow, run.fetch)
    if (
        program is None
        or not program.definition.is_active
        or program.definition.trigger != "operation"
    ):
        raise Rejected({"message": f"No active flow {flow} has the trigger operation."})
    accountability: Any = run.values["$accountability"]
    # One level deeper: the number of levels has a limit, for flows that trigger each other.
    cause = Cause("operation", payload, accountability, run.depth + 1)
    context = RunContext(snapshot, run.limits, run.transaction, run.secrets, may_stop=run.may_stop)
    execution = run_now(run.services, program, cause, context=context, identity=run.identity)
    rejected = execution.outcome.rejected
    # Raised as it is, so that the whole run ends: the runs that wait for it hold slots, too.
    if isinstance(rejected, ProcessBusy):
        raise ProcessBusy
    if rejected:
        raise Rejected(rejected.result, is_transient=rejected.is_transient, reason=rejected.reason)
    return execution.result


def execute(
    services: Services,
    program: Program,
    cause: Cause,
    context: RunContext,
    identity: Identity | None = None,
) -> Execution:
    """Run a flow to its end, rejected or not; other errors are raised.

    `identity` is the caller, if one waits; otherwise it is the identity that the cause names.
    """
    began = present_moment()
    run = Run(
        services,
        program.flow,
        identity or cause.identity,
        _values(services, program, cause, attempt=context.attempt),
        context.attempt,
        cause.depth,
        context.run,
        context.transaction,
        snapshot=context.snapshot,
        limits=context.limits,
        # Runs inside of a run share its secrets: the logs of all mask a secret that one has found.
        secrets=context.secrets or Secrets(_concealed_names(context.snapshot)),
        may_stop=program.definition.may_stop if context.may_stop is None else context.may_stop,
    )
    # Values of the environment are secrets wherever they appear.
    for variable in services.config.flows_env.values():
        run.secrets.add(variable)
    run.secrets.collect(cause.data)
    services.store.database.metrics.count_flow_run()
    return Execution(program, cause, run, run_program(program, run), began)


def _concealed_names(snapshot: Snapshot) -> frozenset[str]:
    """Return the names of fields whose values nobody sees, of all collections."""
    names: frozenset[str] | None = snapshot.derived.get("concealed names")
    if names is None:
        collections = snapshot.catalogue.collections.values()
        fields = [field for each in collections for field in each.fields.values()]
        names = frozenset(field.name for field in fields if field.is_secret)
        snapshot.derived["concealed names"] = names
    return names


def _values(services: Services, program: Program, cause: Cause, *, attempt: int) -> dict[str, Any]:
    return {
        "$trigger": cause.data,
        # For the first operation `$last` is the trigger.
        "$last": cause.data,
        "$accountability": cause.accountability,
        # The number of the attempt lets a flow find out that it is tried again.
        "$flow": {"id": program.flow, "attempt": attempt},
        "$env": dict(services.config.flows_env),
        "$NOW": utc_text(present_moment()),
    }


def refusal_of(execution: Execution) -> Refused:
    """Return the answer to a caller whose run was rejected.

    It is the error of a `throw-error`, else it names the operation and nothing more. Of a run that
    could not go on, it says why.
    """
    rejected = execution.outcome.rejected
    assert rejected
    if isinstance(rejected, ProcessBusy):
        return unavailable("flows", str(rejected.reason))
    if rejected.reason is None and execution.outcome.steps[-1].type == "throw-error":
        return Refused(_thrown_problem(rejected))
    key = execution.outcome.rejected_key
    reason = rejected.reason or f'The flow was rejected by its operation "{key}".'
    return Refused(Problem("UNPROCESSABLE_CONTENT", reason, {"operation": key}))


def _thrown_problem(rejected: Rejected) -> Problem:
    error: Any = rejected.result
    if "errors" in error:  # its own options were wrong
        return Problem("UNPROCESSABLE_CONTENT", "The flow was rejected.")
    return Problem(str(error["code"]), str(error["message"]), own_status=error["status"])


class _EndedRun(NamedTuple):
    """The end of a run, as its row stores it."""

    state: str
    began: datetime
    log: RunLog
    reason: str | None


def _insert(
    fetch: Fetch, program: Program, cause: Cause, ended: _EndedRun, *, is_quick: bool = False
) -> None:
    """Insert the row of a run, with its input if it may be tried again.

    With `is_quick` the caller does not wait until the row is on disk: a crash of the server within
    the next second may lose it.
    """
    if program.definition.accountability is None:
        return
    values = (
        program.flow,
        cause.trigger,
        ended.state,
        cause.depth,
        ended.log.data,
        as_json(cause.accountability),
        ended.log.steps,
        ended.log.result,
        ended.reason,
        ended.began,
        # The data of the trigger is kept only where an administrator may want to try again.
        None if ended.state == "done" else as_json(cause.data),
        is_quick,
    )
    fetch(statement("insert_finished_run"), values)
