"""The operations of flows on the run itself: values, logs, waits, scripts, and other flows."""

from __future__ import annotations

import logging
import time

from cms import jsontext
from cms.bounded_cache import bounded_cache
from cms.flows.execution import run_inner_flow
from cms.flows.redaction import MAX_TEXT_LENGTH
from cms.flows.run import INNER_RUNS_SPENT, Rejected, RenderedOptions, Run, Unmet
from cms.query.rules.payload_rules import parse_rule
from cms.query.rules.resolved_rules import ResolvedRule, resolve_rule
from cms.query.rules.validation import RuleContext, failures

log = logging.getLogger("cms")

MAX_CACHED_FILTER_BYTES = 4096

MAX_RULES_BYTES = 2**22

_RULES = bounded_cache(MAX_RULES_BYTES)
"""Resolved filters by their JSON: to parse one takes as long as to try it."""


def condition(options: RenderedOptions, run: Run) -> object:
    """Evaluate a filter on the values of the run; return null, or reject with the failures."""
    rule = _rule(options["filter"])
    # A path would need a read with the rights of its caller; templates can look the value up
    # instead.
    if rule.caller_paths:
        raise Rejected({"message": "A condition compares with the caller itself, not with a path."})
    # The rule is about the values of the run, as if these were the payload of a new item.
    context = RuleContext(user=run.user, role=run.role)
    problems = failures(rule, run.values, context)
    if problems:
        raise Unmet([{"message": each.message, **each.extensions} for each in problems])
    return None


def _rule(value: object) -> ResolvedRule:
    """Return the rule of a filter, which is nearly always that of the run before."""
    text = jsontext.dumps(value)
    # A filter may hold values that callers have sent, which must not fill the memory.
    if len(text) > MAX_CACHED_FILTER_BYTES:
        return resolve_rule(parse_rule(value))
    rule: ResolvedRule = _RULES.setdefault_with(text, lambda: resolve_rule(parse_rule(value)))
    return rule


def write_log(options: RenderedOptions, run: Run) -> object:
    """Write a line in the log of the run and in that of the service, without secrets."""
    message = run.secrets.masked(options["message"])
    if not isinstance(message, str):
        message = jsontext.dumps(message).decode()
    text = message[:MAX_TEXT_LENGTH]
    run.log(text)
    log.info("flow %s: %s", run.flow, text)
    return None


def transform(options: RenderedOptions, run: Run) -> object:
    """Return the value that the option describes."""
    return options["json"]


def sleep(options: RenderedOptions, run: Run) -> object:
    """Wait; reject at once where the run would be over before."""
    seconds = int(options["milliseconds"]) / 1000
    if seconds >= run.limits.seconds_left:
        raise Rejected.because(run.limits.reason)
    time.sleep(seconds)
    return None


def throw_error(options: RenderedOptions, run: Run) -> object:
    """Reject with an error that a synchronous caller gets as it is."""
    raise Rejected(
        {
            "code": options.get("code") or "UNPROCESSABLE_CONTENT",
            "status": int(options.get("status") or 422),
            "message": options.get("message") or "The flow was rejected.",
        }
    )


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


def trigger(options: RenderedOptions, run: Run) -> object:
    """Run a flow and return its result; for a list of payloads, the results of all.

    A list is a payload for each element. The runs follow each other in every mode: those that are
    called parallel do not see each other either, and a batch is as many as run before the next.
    """
    # The default stands for an option that is left out; a payload of null is handed on.
    payload = options.get("payload", run.values.get("$last"))
    flow = options["flow"]
    if not isinstance(payload, list):
        return run_inner_flow(run, flow, payload)
    left = run.limits.inner_runs_left
    # Before the run of its first element.
    if len(payload) > left:
        reason = f"{INNER_RUNS_SPENT}; this list would take {len(payload)} of {left} that are left."
        raise Rejected({"message": reason})
    return [run_inner_flow(run, flow, element) for element in payload]
