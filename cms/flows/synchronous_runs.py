"""Runs whose caller waits for their end: of flows by requests, and inside of other runs."""

from __future__ import annotations

from datetime import datetime
from typing import Any, NamedTuple

from cms.database.connections import Fetch
from cms.database.statements import statement
from cms.errors import UNEXPECTED_ERROR
from cms.flows.execution import (
    LOOP,
    MAX_DEPTH,
    Cause,
    Execution,
    execute,
)
from cms.flows.program import Program, program_of
from cms.flows.run import INNER_RUNS_SPENT, ProcessBusy, Rejected, Run, RunContext, Services
from cms.flows.run_log import NO_LOG, RunLog, as_json
from cms.schema.types.date_times import present_moment
from cms.store.identity import Identity


class _EndedRun(NamedTuple):
    """The end of a run, as its row stores it."""

    state: str
    began: datetime
    log: RunLog
    reason: str | None


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
    _log(execution)
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
    program = program_of(run.services, snapshot, flow, _fetch(run))
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


def _fetch(run: Run) -> Fetch:
    if run.transaction:
        return run.transaction.transaction.execute
    return run.services.store.database.fetch_primary


def _log(execution: Execution) -> None:
    ended = _EndedRun(execution.state, execution.began, execution.log(), execution.reason)
    # The writes of the run are committed by now, and a crash before this line would leave no log
    # either. In a transaction it would also keep the write from waiting for the disk.
    is_quick = execution.run.transaction is None and ended.state == "done"
    _insert(_fetch(execution.run), execution.program, execution.cause, ended, is_quick=is_quick)


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
