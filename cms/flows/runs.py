"""Runs of flows: at once for a caller, or by a worker from the queue."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import Any, NamedTuple

from cms import jsontext
from cms.database.connections import Database, Fetch, Transaction
from cms.database.statements import statement
from cms.errors import Problem, Refused, not_found
from cms.flows.definition.flow import flow_definition
from cms.flows.execution import MAX_DEPTH, NO_LOG, Attempt, Cause, Execution, as_json, execute
from cms.flows.program import Program, compile_flow
from cms.flows.run import OpenTransaction, Rejected, Run, Services
from cms.items.read.reads import keyed, parse_key
from cms.jobs.task import Job, JobError, defer
from cms.schema.system import FLOW_RUNS
from cms.store.context import RequestContext
from cms.store.identity import Identity
from cms.store.snapshot import Snapshot
from cms.store.store import Store, require_admin

log = logging.getLogger("cms.flows")

MAX_ATTEMPTS = 6
"""Attempts at a run whose failure may pass."""


_LOOP = f"{MAX_DEPTH} runs in a row have each caused the next one; the flows may form a loop."


class _NoProgram(NamedTuple):
    """Stands in the cache for a flow that does not exist."""


_NO_PROGRAM = _NoProgram()


def program_of(snapshot: Snapshot, flow: str, fetch: Fetch) -> Program | None:
    """Return a flow made ready to run, which a snapshot keeps; None where there is no such flow."""

    def load() -> Program | _NoProgram:
        rows = fetch(statement("find_flow_definitions"), ([flow],))
        return compile_flow(flow_definition(rows[0])) if rows else _NO_PROGRAM

    program = snapshot.derived.setdefault_with(("flow program", flow), load)
    return program if isinstance(program, Program) else None


def queue_runs(fetch: Fetch, flow: str, causes: Sequence[Cause]) -> list[str]:
    """Queue runs of a flow, which begin after the commit; return their ids.

    Causes differ in their data only.
    """
    first = causes[0]
    values = (
        flow,
        [as_json(cause.data) for cause in causes],
        first.trigger,
        as_json(first.accountability),
        first.depth,
    )
    return [run for (run,) in fetch(statement("queue_runs"), values)]


def run_at_once(
    services: Services,
    program: Program,
    cause: Cause,
    *,
    identity: Identity | None = None,
    transaction: OpenTransaction | None = None,
) -> Execution:
    """Run a flow while its caller waits, and log the run.

    In a transaction the log is written with it: of a refused write there is none.
    """
    execution = execute(
        services,
        program,
        cause,
        identity=identity,
        attempt=Attempt(run_inner_flow, transaction=transaction),
    )
    _log_at_once(services, execution)
    return execution


def run_inner_flow(run: Run, flow: str, payload: object) -> object:
    """Run a flow as a part of a run, under the same caller; return its result.

    Raises `Rejected` for a flow that operations do not run, and where that flow is rejected.
    """
    if run.depth >= MAX_DEPTH:
        raise Rejected({"message": _LOOP})
    store = run.services.store
    snapshot = store.snapshots.current()
    fetch = store.database.fetch_primary
    if run.transaction:
        snapshot = run.transaction.current_snapshot()
        fetch = run.transaction.transaction.execute
    program = program_of(snapshot, flow, fetch)
    if (
        program is None
        or not program.definition.is_active
        or program.definition.trigger != "operation"
    ):
        raise Rejected({"message": f"No active flow {flow} has the trigger operation."})
    accountability: Any = run.values["$accountability"]
    cause = Cause("operation", payload, accountability, run.depth + 1)
    execution = run_at_once(
        run.services, program, cause, identity=run.identity, transaction=run.transaction
    )
    rejected = execution.outcome.rejected
    if rejected:
        raise Rejected(rejected.result, is_transient=rejected.is_transient)
    return execution.result


def _log_at_once(services: Services, execution: Execution) -> None:
    accountability = execution.program.definition.accountability
    if accountability is None:
        return
    run_log = execution.log() if accountability == "all" else NO_LOG
    values = (
        execution.program.flow,
        execution.cause.trigger,
        execution.state,
        execution.cause.depth,
        run_log.data,
        as_json(execution.cause.accountability),
        run_log.steps,
        run_log.result,
        execution.reason,
        execution.began,
    )
    text = statement("insert_finished_run")
    if execution.run.transaction:
        execution.run.transaction.transaction.execute(text, values)
    else:
        services.store.database.fetch_primary(text, values)


def retry_run(store: Store, identity: Identity, key: str) -> None:
    """Queue a run again that was rejected or has failed, as an administrator."""
    store.run_in_transaction(identity, partial(_retry_run, key))


def _retry_run(key: str, transaction: Transaction, context: RequestContext) -> None:
    require_admin(context.actor)
    run = parse_key(keyed(context, FLOW_RUNS), key)
    if transaction.execute(statement("retry_run"), (run,)):
        defer(transaction, "flow", {"run": run})
        return
    if not transaction.execute(statement("find_run"), (run,)):
        raise not_found()
    reason = "Only a run that was rejected or has failed can be tried again"
    raise Refused(Problem("UNPROCESSABLE_CONTENT", f"{reason}.", {"reason": reason}))


def delete_old_runs(database: Database, retention: timedelta) -> None:
    """Delete runs whose end is longer ago than the retention, and deliveries of signed requests."""
    database.fetch_primary(statement("end_lost_runs"))
    seconds = str(retention.total_seconds())
    database.fetch_primary(statement("delete_old_runs"), (seconds,))
    database.fetch_primary(statement("delete_old_deliveries"), (seconds,))


# By a worker


class _TakenRun(NamedTuple):
    """A row of `take_run`."""

    flow: str
    trigger: str
    attempt: int
    depth: int
    data: str | None
    accountability: str | None
    version: int


@dataclass(frozen=True, slots=True)
class RunWorker:
    """Runs queued runs."""

    services: Services

    def run(self, job: Job) -> None:
        """Run the run that a job names; raises `JobError` for another attempt."""
        identifier = str(job.payload["run"])
        rows = self._execute("take_run", (identifier,))
        # It has ended, or was deleted with its flow.
        if not rows:
            return
        taken = _TakenRun(*rows[0])
        cause = Cause(
            taken.trigger, _loads(taken.data), _accountability(taken.accountability), taken.depth
        )
        program = self._program(taken)
        reason = _reason_against(program, cause)
        if program is None or reason:
            self._finish(identifier, "failed", reason=reason)
            return
        self._run(identifier, program, cause, number=taken.attempt, job=job)

    def _run(
        self, identifier: str, program: Program, cause: Cause, *, number: int, job: Job
    ) -> None:
        is_last = job.attempt >= MAX_ATTEMPTS
        attempt = Attempt(run_inner_flow, number, run=identifier)
        try:
            execution = execute(self.services, program, cause, attempt=attempt)
        except Exception as error:
            reason = "An unexpected error occurred; it has been logged."
            if is_last:
                self._finish(identifier, "failed", reason=reason)
            else:
                self._execute("requeue_run", (identifier, None, reason))
            raise JobError(f"flow {program.flow}: {error!r}") from error
        rejected = execution.outcome.rejected
        if rejected and rejected.is_transient and not is_last:
            values = (identifier, execution.log().steps, execution.reason)
            self._execute("requeue_run", values)
            raise JobError(f"flow {program.flow}: {execution.reason}")
        self._finish_execution(identifier, execution)

    def _finish_execution(self, identifier: str, execution: Execution) -> None:
        accountability = execution.program.definition.accountability
        rejected = execution.outcome.rejected
        if accountability is None and not rejected:
            self._execute("delete_run", (identifier,))
            return
        run_log = execution.log() if accountability == "all" else NO_LOG
        state = "failed" if rejected and rejected.is_transient else execution.state
        values = (
            identifier,
            state,
            *run_log,
            execution.reason,
            accountability is not None,
        )
        self._execute("finish_run", values)

    def _finish(self, identifier: str, state: str, *, reason: str | None) -> None:
        self._execute("finish_run", (identifier, state, None, None, None, reason, True))

    def _program(self, taken: _TakenRun) -> Program | None:
        """Return the flow as it is now."""
        store = self.services.store
        snapshot = store.primary_snapshot(taken.version)
        return program_of(snapshot, taken.flow, store.database.fetch_primary)

    def _execute(self, name: str, values: Sequence[object]) -> list[Any]:
        return self.services.store.database.fetch_primary(statement(name), values)


def _reason_against(program: Program | None, cause: Cause) -> str | None:
    if program is None:
        return "The flow does not exist any more."
    if not program.definition.is_active:
        return "The flow is inactive."
    if cause.depth > MAX_DEPTH:
        return _LOOP
    return None


def _accountability(text: str | None) -> Mapping[str, str | None] | None:
    value = _loads(text)
    return value if isinstance(value, dict) else None


def _loads(text: str | None) -> object:
    return None if text is None else jsontext.loads_stored(text)
