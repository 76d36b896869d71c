"""Queued runs of flows, which a worker executes; those that are lost, tried again, or old."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import NamedTuple

from cms import jsontext
from cms.database.connections import Database, Fetch, single_values
from cms.database.statements import statement
from cms.errors import UNEXPECTED_ERROR, Problem, Refused, not_found
from cms.flows.execution import LOOP, MAX_DEPTH, Cause, Execution, execute
from cms.flows.program import program_of
from cms.flows.run import RunContext, RunLimits, Services
from cms.flows.run_log import NO_LOG, RunLog, as_json
from cms.items.read.reads import keyed, parse_key
from cms.jobs.housekeeping import MAX_ATTEMPTS as MAX_JOB_ATTEMPTS
from cms.jobs.housekeeping import WORKER_TIMEOUT_SECONDS
from cms.jobs.task import Job, JobError, defer
from cms.schema.system import FLOW_RUNS
from cms.store.idempotency import Idempotency
from cms.store.identity import Identity
from cms.store.store import Store
from cms.store.write_attempts import require_admin

log = logging.getLogger("cms.flows")

MAX_ATTEMPTS = 6
"""Attempts at a run whose failure may pass."""
LOST_RUNS_SECONDS = 30.0
"""How often the service looks for runs that have lost their job."""
MAX_DELETED = 5_000
"""Old runs that one statement deletes."""


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
    return single_values(fetch(statement("queue_runs"), values))


def retry_run(
    store: Store, identity: Identity, key: str, idempotency: Idempotency | None = None
) -> None:
    """Queue a run again that was rejected or has failed, as an administrator."""
    for attempt in store.write(identity, idempotency=idempotency):
        with attempt as context:
            transaction = attempt.begin_transaction()
            require_admin(context.actor)
            run = parse_key(keyed(context, FLOW_RUNS), key)
            if transaction.execute(statement("retry_run"), (run,)):
                defer(transaction.execute, "flow", {"run": run})
            elif not transaction.execute(statement("find_run"), (run,)):
                raise not_found()
            else:
                reason = "Only a run that was rejected or has failed can be tried again"
                raise Refused(Problem("UNPROCESSABLE_CONTENT", f"{reason}.", {"reason": reason}))


def requeue_lost_runs(database: Database) -> float:
    """Queue runs again that have lost their job; return after how many seconds to look again.

    A job is lost with a row of the queue, or when it fails before the run has begun. It is also
    lost when a worker that stalls for long ends a job that another one has taken over.
    """
    with database.transaction() as transaction:
        if not transaction.execute(statement("lock_lost_runs"))[0][0]:
            return LOST_RUNS_SECONDS
        values = (str(WORKER_TIMEOUT_SECONDS), MAX_JOB_ATTEMPTS)
        rows = transaction.execute(statement("requeue_lost_runs"), values)
    # Logged after the commit: until then another error could undo it.
    for run, runs_again in rows:
        if runs_again:
            log.warning("run %s of a flow has lost its job and is queued again", run)
        else:
            log.error("run %s of a flow has lost its worker too often and is given up", run)
    return LOST_RUNS_SECONDS


def delete_old_runs(database: Database, retention: timedelta) -> None:
    """Delete runs whose end is longer ago than the retention, and deliveries of signed requests."""
    seconds = str(retention.total_seconds())
    # Many runs of a day, each with its log, would take longer than a statement may.
    while database.fetch_primary(statement("delete_old_runs"), (seconds, MAX_DELETED)):
        pass
    database.fetch_primary(statement("delete_old_deliveries"), (seconds,))


class _TakenOver(Exception):
    """Another worker has begun an attempt at the same run."""


class _ClaimedRun(NamedTuple):
    """A row of `take_run`."""

    flow: str
    trigger: str
    attempt: int
    depth: int
    data: str | None
    accountability: str | None
    flows: int

    @property
    def cause(self) -> Cause:
        data = jsontext.loads_optional(self.data)
        accountability = jsontext.loads_optional(self.accountability)
        if not isinstance(accountability, dict):
            accountability = None
        return Cause(self.trigger, data, accountability, self.depth)


@dataclass(frozen=True, slots=True)
class RunWorker:
    """Runs queued runs."""

    services: Services

    def run(self, job: Job) -> None:
        """Run the run that a job names; raises `JobError` for another attempt."""
        identifier = str(job.payload["run"])
        database = self.services.store.database
        # The statement counts the attempt. All later statements name that number, and find no row
        # once another worker has counted on.
        rows = database.fetch_primary(statement("take_run"), (identifier, job.id))
        # The run has ended, or was deleted with its flow.
        if not rows:
            return
        claimed = _ClaimedRun(*rows[0])
        is_last = job.attempt >= MAX_ATTEMPTS
        try:
            _QueuedAttempt(self.services, identifier, claimed, is_last).run()
        except _TakenOver:
            # A retry of the job by this worker could disturb the worker that has taken the run
            # over.
            text = "attempt %d at run %s came too late: another worker has taken it over"
            log.warning(text, claimed.attempt, identifier)


@dataclass(frozen=True, slots=True)
class _QueuedAttempt:
    """An attempt at a run, which ends as this attempt only while no other worker has begun one."""

    services: Services
    id: str
    claimed: _ClaimedRun
    is_last: bool

    def run(self) -> None:
        try:
            ended = self._execute()
        except Exception as error:
            # The reason is in the service's log only: an unexpected error may hold anything.
            self._give_back(NO_LOG, UNEXPECTED_ERROR)
            raise JobError(f"flow {self.claimed.flow}: {error!r}") from error
        if isinstance(ended, str):
            self._finish("failed", NO_LOG, ended)
            return
        rejected = ended.outcome.rejected
        if rejected and rejected.is_transient and not self.is_last:
            self._give_back(ended.log(), ended.reason)
            # The queue tries failed jobs again, after a pause that doubles.
            raise JobError(f"flow {self.claimed.flow}: {ended.reason}")
        self._finish_execution(ended)

    def _execute(self) -> Execution | str:
        """Run the flow as it is now; return why, if it cannot run any more."""
        cause = self.claimed.cause
        store = self.services.store
        snapshot = store.primary_snapshot(self.claimed.flows)
        # The flow runs as it is now, and not as it was when the run was queued.
        fetch = store.database.fetch_primary
        program = program_of(self.services, snapshot, self.claimed.flow, fetch)
        if program is None:
            return "The flow does not exist any more."
        if not program.definition.is_active:
            return "The flow is inactive."
        if cause.depth > MAX_DEPTH:
            return LOOP
        # There is no deadline, because nobody waits for the run.
        context = RunContext(snapshot, RunLimits(), attempt=self.claimed.attempt, run=self.id)
        return execute(self.services, program, cause, context)

    def _give_back(self, run_log: RunLog, reason: str | None) -> None:
        """Leave the run to the next attempt, or end it after the last one."""
        if self.is_last:
            self._finish("failed", run_log, reason)
        else:
            self._write("requeue_run", (self.id, run_log.steps, reason, self.claimed.attempt))

    def _finish_execution(self, execution: Execution) -> None:
        is_kept = execution.program.definition.accountability is not None
        rejected = execution.outcome.rejected
        if not is_kept and not rejected:
            self._write("delete_run", (self.id, self.claimed.attempt))
            return
        state = execution.state
        # No attempt is left: even a temporary failure is final now.
        if rejected and rejected.is_transient:
            state = "failed"
        self._finish(state, execution.log(), execution.reason, is_activity=is_kept)

    def _finish(
        self, state: str, run_log: RunLog, reason: str | None, *, is_activity: bool = True
    ) -> None:
        values = (self.id, state, *run_log, reason, is_activity, self.claimed.attempt)
        self._write("finish_run", values)

    def _write(self, name: str, values: Sequence[object]) -> None:
        """Write how the attempt ended; raises `_TakenOver` if another one has begun since."""
        if not self.services.store.database.fetch_primary(statement(name), values):
            raise _TakenOver
