"""`cms flows`: flows from a shell, without a running service."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import click

from cms import jsontext
from cms.cli.session import existing_database, say
from cms.config import Config
from cms.database.statements import statement
from cms.extensions import OWN, Extensions
from cms.flows.engine import StepLog
from cms.flows.execution import Cause, Execution, run_now
from cms.flows.filter_flows import FlowPayloadFilter
from cms.flows.program import program_of
from cms.flows.run import RunContext, RunLimits, Services
from cms.flows.run_log import as_json
from cms.logs import start_logging
from cms.store.store import Store


def list_flows(config: Config) -> None:
    """Print id, status, trigger and name of every flow."""
    with _services(config, OWN) as services:
        for columns in services.store.database.fetch_primary(statement("list_flows")):
            say("  ".join(str(column or "-") for column in columns))


def run_flow(config: Config, extensions: Extensions, *, key: str, data: str) -> bool:
    """Run a flow as the service itself, and print its steps; return whether it was not rejected."""
    try:
        trigger = jsontext.loads(data.encode())
    except ValueError as error:
        raise click.BadParameter(f"It is no JSON: {error}.", param_hint="--data") from None
    with _services(config, extensions) as services:
        store = services.store
        snapshot = store.snapshots.current()
        program = program_of(services, snapshot, key, store.database.fetch_primary)
        if program is None:
            raise click.ClickException("There is no such flow.")
        cause = Cause("manual", trigger, None)
        # The person at the terminal may end the command.
        context = RunContext(snapshot, RunLimits())
        execution = run_now(services, program, cause, context=context)
    _print(execution)
    # The result may be empty either way; only a rejection is a failure.
    return execution.outcome.rejected is None


@contextmanager
def _services(config: Config, extensions: Extensions) -> Iterator[Services]:
    with existing_database(config) as dsn:
        ours = replace(config, database_url=dsn, database_pool_size=2)
        # Only errors are logged: the output already reports a database that does not answer.
        start_logging(replace(ours, log_level="error"))
        store = Store(ours, hooks=extensions.store_hooks())
        services = Services(store, ours, extensions.operations)
        # Writes of the run pass the filter flows of their collections, as in the service.
        store.payload_filter = FlowPayloadFilter(services)
        try:
            yield services
        finally:
            store.close()


def _print(execution: Execution) -> None:
    for step in execution.outcome.steps:
        say(_line(step))
        for line in step.lines:
            say(f"    {line}")
        say(f"    {as_json(step.result)}")
    say(execution.reason or f"The flow returns {as_json(execution.result)}")


def _line(step: StepLog) -> str:
    return f"{step.key} ({step.type}): {step.status} in {step.milliseconds} ms"
