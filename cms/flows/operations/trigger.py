"""The operation that runs another flow, which has the trigger `operation`."""

from __future__ import annotations

from cms.flows.run import RenderedOptions, Run

DEFAULT_BATCH_SIZE = 10


def trigger(options: RenderedOptions, run: Run) -> object:
    """Run a flow and return its result; for a list of payloads, the results of all.

    A list is a payload for each element, or for each batch of them. The runs follow each other in
    every mode: those that are called parallel do not see each other either.
    """
    payload = options.get("payload", run.values.get("$last"))
    assert run.run_flow
    flow = options["flow"]
    mode = options.get("iterationMode")
    if not isinstance(payload, list):
        return run.run_flow(run, flow, payload)
    payloads = payload
    if mode == "batch":
        size = int(options.get("batchSize") or DEFAULT_BATCH_SIZE)
        payloads = [payload[start : start + size] for start in range(0, len(payload), size)]
    return [run.run_flow(run, flow, element) for element in payloads]
