"""Queued runs of flows, which a worker executes."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from cms import jsontext
from cms.database.statements import statement
from cms.errors import UNEXPECTED_ERROR
from cms.flows.execution import LOOP, MAX_DEPTH, Cause, Execution, RunAttempt, execute
from cms.flows.run import RunContext, Services
from cms.flows.run_limits import RunLimits
from cms.flows.run_log import NO_LOG, RunLog
from cms.flows.runs import MAX_ATTEMPTS, program_of
from cms.flows.synchronous_runs import run_inner_flow
from cms.jobs.task import Job, JobError

log = logging.getLogger("cms.flows")


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
        context = RunContext(snapshot, RunLimits())
        attempt = RunAttempt(run_inner_flow, context, self.claimed.attempt, self.id)
        return execute(self.services, program, cause, attempt=attempt)

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
