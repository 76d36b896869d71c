"""Runs of flows: their programs, the queue, another attempt, and the end of old ones."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from datetime import timedelta
from typing import NamedTuple

from cms.database.connections import Database, Fetch, Transaction, single_values
from cms.database.statements import statement
from cms.errors import Problem, Refused, not_found
from cms.flows.definition.flow import flow_definition
from cms.flows.execution import Cause
from cms.flows.program import Program, compile_flow
from cms.flows.run import Services
from cms.flows.run_log import as_json
from cms.items.read.reads import keyed, parse_key
from cms.jobs.housekeeping import MAX_ATTEMPTS as MAX_JOB_ATTEMPTS
from cms.jobs.housekeeping import WORKER_TIMEOUT_SECONDS
from cms.jobs.task import defer
from cms.schema.system import FLOW_RUNS
from cms.store.context import RequestContext
from cms.store.idempotency import Idempotency
from cms.store.identity import Identity
from cms.store.snapshot import Snapshot
from cms.store.store import Store
from cms.store.write_attempts import Write, require_admin

log = logging.getLogger("cms.flows")

MAX_ATTEMPTS = 6
"""Attempts at a run whose failure may pass."""
LOST_RUNS_SECONDS = 30.0
"""How often the service looks for runs that have lost their job."""
MAX_DELETED = 5_000
"""Old runs that one statement deletes."""


class _NoProgram(NamedTuple):
    """Stands in the cache for a flow that does not exist."""


_NO_PROGRAM = _NoProgram()


def program_of(services: Services, snapshot: Snapshot, flow: str, fetch: Fetch) -> Program | None:
    """Return a flow made ready to run, which a snapshot keeps; None where there is no such flow."""

    # A flow that is missing is remembered as well: events of a flow that was just deleted ask for
    # it again and again.
    def load() -> Program | _NoProgram:
        rows = fetch(statement("find_flow_definitions"), ([flow],))
        if not rows:
            return _NO_PROGRAM
        return compile_flow(flow_definition(rows[0]), services.operations)

    program = snapshot.derived.setdefault_with(("flow program", flow), load)
    if isinstance(program, Program):
        return program
    return None


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
    write: Write[None] = store.write(identity, idempotency=idempotency)
    for attempt in write:
        with attempt as context:
            _retry_run(key, attempt.begin_transaction(), context)


def _retry_run(key: str, transaction: Transaction, context: RequestContext) -> None:
    require_admin(context.actor)
    run = parse_key(keyed(context, FLOW_RUNS), key)
    if transaction.execute(statement("retry_run"), (run,)):
        defer(transaction.execute, "flow", {"run": run})
        return
    if not transaction.execute(statement("find_run"), (run,)):
        raise not_found()
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
    while len(database.fetch_primary(statement("delete_old_runs"), (seconds, MAX_DELETED))) > 0:
        pass
    database.fetch_primary(statement("delete_old_deliveries"), (seconds,))
