"""The operation `exec`: runs a script of the flow in an isolate."""

from __future__ import annotations

from cms.flows.run import Rejected, RenderedOptions, Run


def run_script(options: RenderedOptions, run: Run) -> object:
    """Run a script on the values of the run; return its result, or reject with what it throws."""
    outcome = run.services.scripts.run(
        options["code"], run.values, max_seconds=run.limits.seconds_left
    )
    for line in outcome.lines:
        run.log(line)
    if outcome.has_failed:
        raise Rejected(outcome.error)
    return outcome.result
