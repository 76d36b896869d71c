"""The operation that runs another flow, which has the trigger `operation`."""

from __future__ import annotations

from cms.flows.run import Rejected, RenderedOptions, Run
from cms.flows.run_limits import INNER_RUNS_SPENT


def trigger(options: RenderedOptions, run: Run) -> object:
    """Run a flow and return its result; for a list of payloads, the results of all.

    A list is a payload for each element. The runs follow each other in every mode: those that are
    called parallel do not see each other either, and a batch is as many as run before the next.
    """
    # The default stands for an option that is left out; a payload of null is handed on.
    payload = options.get("payload", run.values.get("$last"))
    assert run.run_flow
    flow = options["flow"]
    if not isinstance(payload, list):
        return run.run_flow(run, flow, payload)
    _require_room(run, len(payload))
    return [run.run_flow(run, flow, element) for element in payload]


def _require_room(run: Run, inner_runs: int) -> None:
    """Reject a list that is too long, before the run of its first element."""
    left = run.limits.inner_runs_left
    if inner_runs > left:
        message = f"{INNER_RUNS_SPENT}; this list would take {inner_runs} of {left} that are left."
        raise Rejected({"message": message})
