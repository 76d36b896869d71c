"""Runs a program: one operation after the other, each with the results of those before it."""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from datetime import UTC, datetime
from typing import NamedTuple

from cms.errors import Refused
from cms.flows.definition.templates import MAX_RENDERED_SIZE, RenderedTooLarge, require_size
from cms.flows.program import FlowStep, Program
from cms.flows.run import ProcessBusy, Rejected, Run, Unmet
from cms.jsontext import TooDeep
from cms.processes.slots import NoFreeSlot

_TRANSIENT_STATUS = 503
_TOO_DEEP = "A value of the run is nested too deeply."


class StepLog(NamedTuple):
    """The log of one step of a run: its time, its duration in milliseconds, and its lines."""

    operation: str
    key: str
    type: str
    status: str
    options: object
    result: object
    began: datetime
    milliseconds: float
    lines: tuple[str, ...]


class Outcome(NamedTuple):
    """The end of a run: its values with the results of all operations.

    `rejected` is the rejection that no operation followed, `rejected_key` the key of its operation.
    """

    values: Mapping[str, object]
    steps: tuple[StepLog, ...]
    rejected: Rejected | None = None
    rejected_key: str | None = None


def run_program(program: Program, run: Run) -> Outcome:
    """Run the operations of a flow from the first to an end; their results are in `run.values`.

    The graph has no cycle, so every operation runs once at most.
    """
    logs: list[StepLog] = []
    following = program.definition.graph.first
    while following is not None:
        step = program.steps.get(following)
        if step is None:
            # Flows are checked when they are written; rows of operations can be deleted by other
            # programs.
            missing = Rejected.because(f"The flow has no operation {following}.")
            return Outcome(run.values, tuple(logs), missing, following)
        # Looked at between operations; each that waits has its own limit from `seconds_left`.
        if run.limits.is_over:
            late = Rejected.because(run.limits.reason)
            return Outcome(run.values, tuple(logs), late, step.key)
        rejected = _run_step(step, run, logs)
        following = step.reject if rejected else step.resolve
        # A run of a busy process ends at once: the operation after its `reject` might wait as well.
        if isinstance(rejected, Unmet) and following is None and run.may_stop:
            # What the condition compares is for the log of the run, and not for a caller.
            run.values["$last"] = None
            return Outcome(run.values, tuple(logs))
        if rejected and (following is None or isinstance(rejected, ProcessBusy)):
            return Outcome(run.values, tuple(logs), rejected, step.key)
    return Outcome(run.values, tuple(logs))


def _run_step(step: FlowStep, run: Run, logs: list[StepLog]) -> Rejected | None:
    """Run one operation, and add its result to the values and its log to the logs."""
    began = datetime.now(UTC)
    start = time.perf_counter()
    # Operations add to them by `run.log`; each step begins with none.
    run.lines = []
    run.operation = step.id
    options: object = None
    rejected: Rejected | None = None
    try:
        options = _rendered(step, run)
        # Before the operation runs: the lines that it logs must be masked already.
        run.secrets.collect(options)
        result = _result(step, options, run)
    except Rejected as error:
        result = error.result
        # Without its traceback, whose frames refer to it.
        rejected = error.with_traceback(None)
    milliseconds = round((time.perf_counter() - start) * 1000, 3)
    run.secrets.collect(result)
    status = "reject" if rejected else "resolve"
    logs.append(
        StepLog(
            step.id,
            step.key,
            step.type,
            status,
            options,
            result,
            began,
            milliseconds,
            tuple(run.lines),
        )
    )
    # Each result is there under the key of its operation, and the newest as `$last`.
    run.values[step.key] = result
    run.values["$last"] = result
    return rejected


def _rendered(step: FlowStep, run: Run) -> object:
    try:
        options = step.options.render(run.values)
        if not step.is_constant:
            require_size(options)
    except RenderedTooLarge:
        message = f"The templates come to more than {MAX_RENDERED_SIZE // 2**20} MB."
        raise Rejected({"message": message}) from None
    except TooDeep:
        raise Rejected({"message": _TOO_DEEP}) from None
    return options


def _result(step: FlowStep, options: object, run: Run) -> object:
    # The rendered values of templates are known only now.
    if not step.is_constant:
        _require_valid(step, options)
    assert isinstance(options, dict)
    try:
        with _slot(step, run):
            return step.operation.run(options, run)
    except NoFreeSlot:
        raise ProcessBusy from None
    except RenderedTooLarge:
        raise Rejected({"message": "What the inner flow returns is too large."}) from None
    except Refused as refused:
        result = {"errors": [problem.as_json() for problem in refused.problems]}
        raise Rejected(result, is_transient=refused.status == _TRANSIENT_STATUS) from refused
    except TooDeep:
        raise Rejected({"message": _TOO_DEEP}) from None


def _slot(step: FlowStep, run: Run) -> AbstractContextManager[None]:
    """Return the slot of an operation that may wait while a caller does; others need none."""
    slots = run.services.wait_slots
    return slots.take() if slots and step.operation.may_wait else nullcontext()


def _require_valid(step: FlowStep, options: object) -> None:
    errors = [
        {"message": f"{error}.", "path": list(error.path)}
        for error in step.operation.options.errors(options, are_rendered=True)
    ]
    if errors:
        raise Rejected({"errors": errors})
